"""Results scored again from their raw logs, a batch at a time."""

from dataclasses import replace

from fastapi import APIRouter

from server.people.dependencies import OrganiserDep, PartsDep
from server.rescoring.schemas import RescoreRequest, RescoreView, rescore_view
from server.rescoring.service import rescore_batch

router = APIRouter(tags=["rescoring"])


@router.post("/rescore")
def rescore(body: RescoreRequest, parts: PartsDep, caller: OrganiserDep) -> RescoreView:
    """Derive results again from their raw logs, the oldest first, and keep what changed.

    A batch ends after a few seconds, so that no request takes long: send the same body with
    `cursor` set to the answer's `next_cursor` until that is null. Doing it twice changes nothing.
    """
    choice = replace(body.choice, actor=caller)
    batch = rescore_batch(parts, choice, cursor=body.cursor, limit=body.limit)
    return rescore_view(batch)

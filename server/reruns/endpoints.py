"""Reruns: ask for many, decide about a verdict that waits, compare two."""

from fastapi import APIRouter

from server.dependencies import OrganiserDep, PartsDep
from server.reruns import service
from server.reruns.comparison import compare_verifications
from server.reruns.schemas import BatchCreate, BatchView, ComparisonView, DecisionCreate
from server.sessions.viewing import ViewerDep
from server.verifications.queries import view
from server.verifications.schemas import VerificationView

router = APIRouter(tags=["verifications"])


@router.post("/verifications/batch")
def verify_batch(body: BatchCreate, parts: PartsDep, caller: OrganiserDep) -> BatchView:
    """Have many submissions replayed, or with `dry_run` say what that would cost.

    What is under way or cannot be replayed is skipped, with the reason.
    """
    return service.verify_batch(parts, caller, body)


@router.get("/verifications/compare")
def compare(first: str, second: str, parts: PartsDep, viewer: ViewerDep) -> ComparisonView:
    """Two verifications of one submission, side by side, with what is more than chance."""
    with parts.database.read(viewer) as session:
        return compare_verifications(session, first, second)


@router.post("/verifications/{verification_id}/decide")
def decide(
    verification_id: str, body: DecisionCreate, parts: PartsDep, caller: OrganiserDep
) -> VerificationView:
    """Publish the verdict of a rerun, or keep the one that is published; with the reason."""
    with parts.database.write() as session:
        verification = service.decide(session, caller, verification_id, body)
        return view(session, verification, alive_seconds=parts.settings.worker_alive_seconds)

"""Endpoints of verifications: request, read, cancel, watch, decide; head-to-heads and pools."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from finishline.api.schema import Schema
from finishline.api.verifications import VerificationView
from server.base.request_context import note
from server.base.services import ServicesDep
from server.base.standing import find_verification
from server.people.dependencies import OrganiserDep, SubmitterDep
from server.people.signed_in import ViewerDep
from server.verifications import duels, live, queries, reruns, views
from server.verifications.queue import Waits
from server.verifications.requests import VerificationCreate, ask_as_caller, cancel
from server.verifications.rerun_views import (
    BatchCreate,
    BatchView,
    DecisionCreate,
    VerificationComparison,
)
from server.verifications.reruns import compare_verifications

router = APIRouter(tags=["verifications"])


class VerificationList(Schema):
    """Verifications, newest first, without their reports."""

    verifications: list[VerificationView]


@router.post("/submissions/{submission_id}/verifications", status_code=201)
def request_verification(
    submission_id: str,
    services: ServicesDep,
    caller: SubmitterDep,
    body: VerificationCreate | None = None,
) -> VerificationView:
    """Request a replay of a submission, or a measurement of its latency.

    The answer seals the drawn runs and seeds. A submitter may request the first verification of
    their own submission, which counts against their quota; organisers may request any.
    """
    asked = body or VerificationCreate()
    with services.database.write() as session:
        verification = ask_as_caller(session, services.settings, caller, submission_id, asked)
        note(verification_id=verification.id)
        return views.view(session, verification)


@router.get("/verifications")
def list_verifications(
    services: ServicesDep,
    viewer: ViewerDep,
    state: Literal["queued", "running", "checking", "done", "failed", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> VerificationList:
    """Verifications, newest first, without their reports."""
    with services.database.read(viewer) as session:
        found = queries.list_verifications(session, state=state, limit=limit)
        waits = Waits(session)
        return VerificationList(
            verifications=[
                views.view(session, verification, with_report=False, waits=waits)
                for verification in found
            ]
        )


@router.get("/verifications/compare")
def get_verification_comparison(
    first: str, second: str, services: ServicesDep, viewer: ViewerDep
) -> VerificationComparison:
    """Compare two verifications of one submission, and mark differences that exceed chance."""
    with services.database.read(viewer) as session:
        return compare_verifications(session, first, second)


@router.get("/verifications/{verification_id}")
def get_verification(
    verification_id: str, services: ServicesDep, viewer: ViewerDep
) -> VerificationView:
    """Read a verification: its attempts, its verdict with every reason, its report."""
    with services.database.read(viewer) as session:
        verification = find_verification(session, verification_id)
        return views.view(session, verification)


@router.post("/verifications/{verification_id}/cancel")
def cancel_verification(
    verification_id: str, services: ServicesDep, caller: OrganiserDep
) -> VerificationView:
    """Cancel a verification without a verdict. A running replay finishes first, for its pool."""
    with services.database.write() as session:
        verification = cancel(session, caller, verification_id)
        return views.view(session, verification)


def existing_verification(verification_id: str, services: ServicesDep, viewer: ViewerDep) -> str:
    """Return the id of an existing verification: raises the 404 before any event is sent."""
    with services.database.read(viewer) as session:
        return find_verification(session, verification_id).id


@router.get("/verifications/{verification_id}/events", response_class=EventSourceResponse)
async def watch_verification(
    services: ServicesDep,
    viewer: ViewerDep,
    verification_id: Annotated[str, Depends(existing_verification)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a verification: `state` at each change, `replay` for each event, `end` at the end."""
    position = live.parse_position(last_event_id)
    async for event in live.watch(services, viewer, verification_id, position):
        yield event


@router.post("/verifications/batch")
def verify_batch(body: BatchCreate, services: ServicesDep, caller: OrganiserDep) -> BatchView:
    """Request replays of many submissions, or estimate their cost with `dry_run`.

    A submission under way, or one that cannot be replayed, is skipped, with the reason.
    """
    return reruns.verify_batch(services, caller, body)


@router.post("/verifications/{verification_id}/decide")
def decide_verification(
    verification_id: str, body: DecisionCreate, services: ServicesDep, caller: OrganiserDep
) -> VerificationView:
    """Publish the verdict of a rerun, or keep the published one; with the reason."""
    with services.database.write() as session:
        verification = reruns.decide(session, caller, verification_id, body)
        return views.view(session, verification)


@router.post("/duels", status_code=201)
def request_duel(
    services: ServicesDep, caller: SubmitterDep, body: duels.DuelCreate
) -> VerificationView:
    """Request a head-to-head: two submissions trained in turn on one worker.

    A submitter names their own row, which takes less than 1.1 times the holder's time, and the
    holder of its board. Its runs count against their quota. Organisers may name any two.
    """
    with services.database.write() as session:
        verification = duels.ask_for_duel(session, services.settings, caller, body)
        session.refresh(verification)
        return views.view(session, verification)

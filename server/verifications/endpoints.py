"""Endpoints of verifications: request, read, cancel, watch, decide; head-to-heads."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.api.verifications import VerificationView
from server.base.request_context import note
from server.base.services import Services, ServicesDep
from server.base.standing import find_verification
from server.people.declared import Routes
from server.people.dependencies import Caller, OrganiserDep
from server.people.signed_in import ViewerDep
from server.verifications import head_to_heads, live, queries, requests, reruns
from server.verifications.queue import Waits
from server.verifications.reruns import BatchCreate, BatchView, DecisionCreate
from server.verifications.reruns import VerificationComparison as Comparison
from server.verifications.views import line, view

router = Routes(tags=["verifications"])
State = Literal["queued", "running", "checking", "done", "failed", "cancelled"]
Limit = Annotated[int, Query(ge=1, le=100)]


class VerificationList(Schema):
    """Verifications, newest first, without their bands and reports."""

    verifications: list[VerificationView]


@router.command("/submissions/{submission_id}/verifications", role="submitter", status=201)
def request_verification(
    session: Session,
    services: Services,
    caller: Caller,
    submission_id: str,
    body: requests.VerificationCreate | None = None,
) -> VerificationView:
    """Request a replay of a submission, or a measurement of its latency.

    The answer seals the drawn runs and seeds. A submitter may request the first verification of
    their own submission, which counts against their quota; organisers may request any.
    """
    asked = body or requests.VerificationCreate()
    made = requests.ask_as_caller(session, services.settings, caller, submission_id, asked)
    note(verification_id=made.id)
    return view(session, made)


@router.read("/verifications")
def list_verifications(
    session: Session, state: State | None = None, limit: Limit = 20
) -> VerificationList:
    """Verifications, newest first, without their bands and reports."""
    found, waits = queries.list_verifications(session, state=state, limit=limit), Waits(session)
    return VerificationList(verifications=[line(session, each, waits) for each in found])


@router.read("/verifications/compare")
def get_verification_comparison(session: Session, first: str, second: str) -> Comparison:
    """Compare two verifications of one submission, and mark differences that exceed chance."""
    return reruns.compare_verifications(session, first, second)


@router.read("/verifications/{verification_id}")
def get_verification(session: Session, verification_id: str) -> VerificationView:
    """Read a verification: its attempts, its verdict with every reason, its report."""
    return view(session, find_verification(session, verification_id))


@router.command("/verifications/{verification_id}/cancel", role="organiser")
def cancel_verification(session: Session, caller: Caller, verification_id: str) -> VerificationView:
    """Cancel a verification without a verdict. 409 for a replay that runs: it ends by itself."""
    return view(session, requests.cancel(session, caller, verification_id))


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

    A submission under way, a duplicate, or one that cannot be replayed is skipped, with the reason.
    """
    return reruns.verify_batch(services, caller, body)


@router.command("/verifications/{verification_id}/decide", role="organiser")
def decide_verification(
    session: Session, caller: Caller, verification_id: str, body: DecisionCreate
) -> VerificationView:
    """Publish the verdict of a rerun, or keep the published one; with the reason."""
    return view(session, reruns.decide(session, caller, verification_id, body))


@router.command("/head-to-heads", role="submitter", status=201)
def request_head_to_head(
    session: Session, services: Services, caller: Caller, body: head_to_heads.HeadToHeadCreate
) -> VerificationView:
    """Request a head-to-head: two submissions trained in turn on one worker.

    A submitter names their own row, which takes less than 1.1 times the holder's time, and the
    holder of its board. Its runs count against their quota. Organisers may name any two.
    """
    made = head_to_heads.ask_for_head_to_head(session, services.settings, caller, body)
    session.refresh(made)
    return view(session, made)

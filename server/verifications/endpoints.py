"""Endpoints of verifications: request, read, cancel, watch, decide; head-to-heads."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.api.verifications import VerificationView
from finishline.rules.text import count_text
from server.base.request_context import note
from server.base.services import Services, ServicesDep
from server.base.standing import find_verification
from server.people.callers import Caller, ViewerDep
from server.people.declared import Form, Routes
from server.verifications import head_to_heads, live, queries, requests, reruns
from server.verifications.queue import Waits
from server.verifications.reruns import BatchCreate, BatchView, DecisionCreate
from server.verifications.reruns import VerificationComparison as Comparison
from server.verifications.views import line, view

# The console's pages of a batch, of verdicts to decide about, and of head-to-heads.
BATCH, DECIDE = "/console/verify", "/console/decide"
HEAD_TO_HEADS = "/console/head-to-heads"
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


@router.command(
    None,
    Form("/submissions/{submission_id}/verify", to="/verifications/{0.id}"),
    role="submitter",
)
def request_from_page(
    session: Session,
    services: Services,
    caller: Caller,
    submission_id: str,
    body: requests.VerificationCreate,
) -> VerificationView:
    """Request what the page of a submission offers."""
    return request_verification(session, services, caller, submission_id, body)


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


@router.command(
    "/verifications/{verification_id}/cancel",
    Form(
        "/console/verifications/{verification_id}/cancel",
        done="Verification {verification_id} is cancelled.",
        page=BATCH,
    ),
    role="organiser",
)
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


def queued_words(queued: BatchView, **_given: Any) -> str:
    """What a batch queued, and what it skipped."""
    words = count_text(len(queued.replays), "verification is", "verifications are")
    skipped = " ".join(f"{item.submission_id}: {item.why}" for item in queued.skipped)
    return f"{words} queued." + (f" Skipped since: {skipped}" if skipped else "")


@router.command(
    "/verifications/batch",
    Form(
        BATCH,
        done=queued_words,
        read=reruns.chosen_fields,
        renamed={"form": "submissions"},
        kept=("preview", "kind", "submissions"),
    ),
    role="organiser",
)
def verify_batch(
    session: Session, services: Services, caller: Caller, body: BatchCreate
) -> BatchView:
    """Request replays of many submissions, or estimate their cost with `dry_run`.

    A submission under way, a duplicate, or one that cannot be replayed is skipped, with the reason.
    """
    return reruns.verify_batch(session, services.benchmarks, caller, body)


def decided_words(decided: VerificationView, body: DecisionCreate, **_given: Any) -> str:
    """What became of a verdict."""
    became = "is published" if body.decision == "publish" else "is kept back"
    return f"The verdict of {decided.id}, {decided.outcome}, {became}."


@router.command(
    "/verifications/{verification_id}/decide",
    Form(DECIDE + "/{verification_id}", done=decided_words, to=DECIDE),
    role="organiser",
)
def decide_verification(
    session: Session, caller: Caller, verification_id: str, body: DecisionCreate
) -> VerificationView:
    """Publish the verdict of a rerun, or keep the published one; with the reason."""
    return view(session, reruns.decide(session, caller, verification_id, body))


@router.command(
    "/head-to-heads",
    Form(
        HEAD_TO_HEADS,
        done="Head-to-head {0.id} is queued.",
        kept=("challenger", "holder"),
        role="organiser",
    ),
    role="submitter",
    status=201,
)
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

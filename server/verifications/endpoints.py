"""Verifications: ask, read, cancel, watch."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from server.accounts.roles import ORGANISERS
from server.dependencies import CallerDep, OrganiserDep, PartsDep, require_allowed
from server.request_context import note
from server.sessions.viewing import ViewerDep
from server.verifications import queries
from server.verifications.own_requests import ask_as_caller
from server.verifications.requests import cancel
from server.verifications.schemas import (
    VerificationCreate,
    VerificationList,
    VerificationView,
    WitnessCreate,
    WitnessToken,
)
from server.verifications.witnesses import make_witness_token

router = APIRouter(tags=["verifications"])


@router.post("/submissions/{submission_id}/verifications", status_code=201)
def request_verification(
    submission_id: str,
    parts: PartsDep,
    request: Request,
    caller: CallerDep,
    body: VerificationCreate | None = None,
) -> VerificationView:
    """Ask for a replay of a submission, or for its latency to be measured.

    The drawn runs and seeds are sealed in the answer. A submitter may ask for the first
    verification of a submission of their own, which counts against their quota; organisers for any.
    """
    asked = body or VerificationCreate()
    if not caller.may("organise"):
        require_allowed(caller, request, ("submitter", *ORGANISERS), "submit")
    with parts.database.write() as session:
        verification = ask_as_caller(session, parts.settings, caller, submission_id, asked)
        note(verification_id=verification.id)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )


@router.post("/submissions/{submission_id}/witness-token", status_code=201)
def create_witness_token(
    submission_id: str, parts: PartsDep, caller: OrganiserDep, body: WitnessCreate | None = None
) -> WitnessToken:
    """Make a token for a worker on the submitter's machine: for this submission, for 24 hours.

    Its replay is asked for at once. Where the epochs agree the row says "claimed, witnessed by" and
    the organiser; it is no measurement. Shown this once.
    """
    wanted = body or WitnessCreate()
    with parts.database.write() as session:
        found = make_witness_token(session, caller, submission_id, reason=wanted.reason)
        return WitnessToken(
            submission_id=submission_id,
            verification_id=found.verification.id,
            token=found.made.secret,
            token_id=found.made.token.id,
            expires_at=found.made.token.expires_at,
        )


@router.get("/verifications")
def list_verifications(
    parts: PartsDep,
    viewer: ViewerDep,
    state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> VerificationList:
    """Verifications, newest first, without their reports."""
    alive = parts.settings.worker_alive_seconds
    with parts.database.read(viewer) as session:
        found = queries.list_verifications(session, state=state, limit=limit)
        owners = queries.owners_of(session, found)
        views = [
            queries.view(
                session, verification, alive_seconds=alive, with_report=False, owners=owners
            )
            for verification in found
        ]
    return VerificationList(verifications=views)


@router.get("/verifications/{verification_id}")
def get_verification(verification_id: str, parts: PartsDep, viewer: ViewerDep) -> VerificationView:
    """A verification: its attempts, its verdict with every reason, its report."""
    with parts.database.read(viewer) as session:
        verification = queries.find_verification(session, verification_id)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )


@router.post("/verifications/{verification_id}/cancel")
def cancel_verification(
    verification_id: str, parts: PartsDep, caller: OrganiserDep
) -> VerificationView:
    """End a verification without a verdict. A replay that runs is finished first, for its pool."""
    with parts.database.write() as session:
        verification = cancel(session, caller, verification_id)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )

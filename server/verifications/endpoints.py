"""Verifications: ask, read, cancel, watch."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from server.audit.service import Subject, record
from server.dependencies import OrganiserDep, PartsDep
from server.observability.context import note
from server.submissions.queries import find_submission
from server.verifications import queries, service
from server.verifications.latency import request_latency
from server.verifications.schemas import (
    VerificationCreate,
    VerificationList,
    VerificationView,
)

router = APIRouter(tags=["verifications"])
REQUESTS = {"replay": service.request_verification, "latency": request_latency}


@router.post("/submissions/{submission_id}/verifications", status_code=201)
def request_verification(
    submission_id: str,
    parts: PartsDep,
    caller: OrganiserDep,
    body: VerificationCreate | None = None,
) -> VerificationView:
    """Ask for a replay of a submission, or for its latency to be measured.

    The drawn runs and seeds are sealed in the answer.
    """
    asked = body or VerificationCreate()
    request = REQUESTS[asked.kind]
    with parts.database.write() as session:
        submission = find_submission(session, submission_id)
        verification = request(
            session, submission, requested_by=caller.user_id, reason=asked.reason
        )
        note(verification_id=verification.id)
        record(
            session,
            caller,
            "verification.request",
            Subject("submission", submission_id),
            reason=verification.reason,
            before=None,
            after={"verification": verification.id, "seal": verification.seal},
        )
        session.refresh(verification)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )


@router.get("/verifications")
def list_verifications(
    parts: PartsDep,
    state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> VerificationList:
    """Verifications, newest first, without their reports."""
    alive = parts.settings.worker_alive_seconds
    with parts.database.read() as session:
        found = queries.list_verifications(session, state=state, limit=limit)
        views = [
            queries.view(session, verification, alive_seconds=alive, with_report=False)
            for verification in found
        ]
    return VerificationList(verifications=views)


@router.get("/verifications/{verification_id}")
def get_verification(verification_id: str, parts: PartsDep) -> VerificationView:
    """A verification: its attempts, its verdict with every reason, its report."""
    with parts.database.read() as session:
        verification = queries.find_verification(session, verification_id)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )


@router.post("/verifications/{verification_id}/cancel")
def cancel_verification(
    verification_id: str, parts: PartsDep, caller: OrganiserDep
) -> VerificationView:
    """End a verification without a verdict."""
    with parts.database.write() as session:
        queries.lock_verification(session, verification_id)
        verification = queries.find_verification(session, verification_id)
        before = {"state": verification.state}
        service.cancel_verification(session, verification)
        record(
            session,
            caller,
            "verification.cancel",
            Subject("verification", verification_id),
            reason=None,
            before=before,
            after={"state": verification.state},
        )
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )

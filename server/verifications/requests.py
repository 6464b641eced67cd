"""Asking for a verification and cancelling one, as organisers do: with a record of who did."""

from sqlalchemy.orm import Session

from finishline.rules.ranking.evidence import consequence
from finishline.rules.verification.purposes import PURPOSES
from server.audit.service import Subject, record
from server.dependencies import Caller
from server.models import Verification
from server.submissions.queries import find_submission
from server.verifications.cross_checks import give_up_cross_check
from server.verifications.outcomes import conclude_replay
from server.verifications.publishing import standing
from server.verifications.queries import find_verification, lock_verification
from server.verifications.schemas import VerificationCreate
from server.verifications.service import (
    cancel_verification,
    mark_cancelled,
    request_verification,
)


def ask_for_verification(
    session: Session, caller: Caller, submission_id: str, wanted: VerificationCreate
) -> Verification:
    """Ask for a job about a submission; written to the audit log.

    Raises NotFoundError, ContentError, ConflictError as the request does.
    """
    submission = find_submission(session, submission_id)
    verification = request_verification(
        session,
        submission,
        requested_by=caller.user_id,
        reason=wanted.reason,
        purpose=PURPOSES[wanted.kind],
        wishes={"own_seeds": wanted.own_seeds},
    )
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
    return verification


def cancel(session: Session, caller: Caller, verification_id: str) -> Verification:
    """End a verification without a verdict; written to the audit log.

    A replay that runs is finished first, so that nobody cuts its sealed runs short.
    Raises NotFoundError, ConflictError if it has ended or is cancelled already.
    """
    lock_verification(session, verification_id)
    verification = find_verification(session, verification_id)
    before, submission = {"state": verification.state}, verification.submission
    stood = None if submission is None else standing(submission)
    counts = verification.kind == "replay" and verification.witness_token_id is None
    is_finished_first = counts and verification.state == "running"
    if is_finished_first:
        mark_cancelled(verification)
    else:
        cancel_verification(session, verification)
    if verification.kind == "cross_check":
        give_up_cross_check(session, verification, conclude=conclude_replay)
    told = {}
    if is_finished_first:
        told = {"consequence": "no verdict; the runs under way are finished and count"}
    elif submission is not None and stood is not None:
        told = {"consequence": f"no verdict; the row {consequence(stood, standing(submission))}"}
    record(
        session,
        caller,
        "verification.cancel",
        Subject("verification", verification_id),
        reason=None,
        before=before,
        after={"state": verification.state} | told,
    )
    return verification

"""Withdraw a submission: it ranks nowhere afterwards, and nothing of it is deleted."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from finishline.rules.ranking import evidence_words
from finishline.rules.verification.purposes import DUEL
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError, NotAllowedError, no_such
from server.base.events import SubmissionWithdrawn, emit
from server.base.forms import Body, Sentence, example
from server.base.models import Submission, Verification
from server.base.models.visibility import may_see
from server.base.request_context import note
from server.base.services import ServicesDep
from server.base.standing import OPEN, standing
from server.benchmarks.prices import BookCosts
from server.benchmarks.queries import definition
from server.people.audit import Subject, record
from server.people.dependencies import Caller, OrganiserDep, SubmitterDep
from server.people.signed_in import viewer_for
from server.submissions.duplicates import bring_back
from server.submissions.service import find_submission
from server.submissions.views import submission_view


class WithdrawalCreate(Body):
    """Reason, which is shown on the submission's page and kept in the audit log."""

    model_config = example(reason="trained on the test set by mistake")

    reason: Sentence


def withdraw(session: Session, caller: Caller, submission_id: str, reason: str) -> Submission:
    """Withdraw a submission from its board; cancel its queued verifications and its head-to-heads.

    A replay that has started goes on: its measured runs count for their settings, or an
    unlucky one would be withdrawn and requested again.
    """
    submission = _find_own(session, caller, submission_id)
    cancelled = _open_verifications(session, submission_id)
    if submission.withdrawn_at is not None:
        raise ConflictError(f"Submission {submission_id} is withdrawn already.")
    submission.withdrawn_at = utc_now()
    submission.withdrawn_by = caller.name
    submission.withdrawn_because = reason
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
    emit(session, SubmissionWithdrawn(submission, cancelled))
    after = _logged(submission) | {
        "cancelled": list(cancelled),
        "consequence": f"the row, {evidence_words(standing(submission))}, leaves the board; "
        "its measured runs stay",
    }
    _record(session, caller, "submission.withdraw", submission, reason, before=None, after=after)
    return submission


def reinstate(session: Session, caller: Caller, submission_id: str, reason: str) -> Submission:
    """Let a withdrawn or retired submission rank as before; written to the audit log."""
    submission = find_submission(session, submission_id)
    was_withdrawn = submission.withdrawn_at is not None
    if not was_withdrawn and submission.retirement is None:
        raise ConflictError(f"Submission {submission_id} is neither withdrawn nor retired.")
    before = _logged(submission)
    submission.withdrawn_at = submission.withdrawn_by = submission.withdrawn_because = None
    submission.retirement = None
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
    if was_withdrawn:
        bring_back(session, submission)
    words = evidence_words(standing(submission))
    comes = f"the row comes back to the board as {words}"
    after = {"consequence": comes if was_withdrawn else "the row may hold first place again"}
    _record(session, caller, "submission.reinstate", submission, reason, before=before, after=after)
    return submission


def may_withdraw(caller: Caller, submission: Submission) -> bool:
    """Whether a caller may withdraw a submission: its submitter and organisers may."""
    is_own = caller.is_submitter and submission.user_id == caller.user_id
    return is_own or caller.is_organiser


def _find_own(session: Session, caller: Caller, submission_id: str) -> Submission:
    submission = find_submission(session, submission_id)
    if may_withdraw(caller, submission):
        return submission
    if not may_see(viewer_for(caller), submission):
        raise no_such("submission", submission_id)
    raise NotAllowedError(
        f"Submission {submission_id} is not yours; its submitter or an organiser may withdraw it."
    )


def _open_verifications(session: Session, submission_id: str) -> Sequence[str]:
    """Ids of the verifications that a withdrawal ends.

    An independent rerun is none of them: the replay that waits for it goes on.
    """
    about = or_(
        Verification.submission_id == submission_id, Verification.against_id == submission_id
    )
    stops = Verification.kind == DUEL.name
    ends = ((Verification.state == "queued") & Verification.checks_id.is_(None)) | stops
    query = select(Verification.id).where(about, Verification.state.in_(OPEN), ends)
    return session.scalars(query.order_by(Verification.id)).all()


def _logged(submission: Submission) -> dict[str, Any]:
    return {
        "withdrawn_at": submission.withdrawn_at,
        "withdrawn_by": submission.withdrawn_by,
        "withdrawn_because": submission.withdrawn_because,
        "retirement": submission.retirement,
    }


def _record(
    session: Session,
    caller: Caller,
    action: str,
    submission: Submission,
    reason: str,
    **change: dict[str, Any] | None,
) -> None:
    subject = Subject("submission", submission.id)
    record(
        session,
        caller,
        action,
        subject,
        reason=reason,
        before=change["before"],
        after=change["after"],
    )


router = APIRouter(tags=["submissions"])


@router.post("/submissions/{submission_id}/withdrawal")
def withdraw_submission(
    submission_id: str, body: WithdrawalCreate, services: ServicesDep, caller: SubmitterDep
) -> SubmissionView:
    """Withdraw a submission, for its submitter and organisers. It stays readable, unranked.

    Its queued verifications are cancelled; a replay that has begun goes on. Only an organiser can
    undo it.
    """
    note(submission_id=submission_id)
    with services.database.write() as session:
        return view_of(session, withdraw(session, caller, submission_id, body.reason))


@router.post("/submissions/{submission_id}/reinstatement")
def reinstate_submission(
    submission_id: str, body: WithdrawalCreate, services: ServicesDep, caller: OrganiserDep
) -> SubmissionView:
    """Let a withdrawn submission rank again, or a retired one hold first place."""
    note(submission_id=submission_id)
    with services.database.write() as session:
        return view_of(session, reinstate(session, caller, submission_id, body.reason))


def view_of(session: Session, submission: Submission) -> SubmissionView:
    """View of a submission as the session changed it."""
    session.flush()
    session.refresh(submission)
    version = definition(session, submission.benchmark_sha256).version
    return submission_view(submission, benchmark_version=version, costs=BookCosts(session))

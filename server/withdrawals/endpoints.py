"""Withdrawing a submission, and letting it back."""

from fastapi import APIRouter
from sqlalchemy.orm import Session

from server.benchmarks.prices import BookCosts
from server.benchmarks.queries import definition
from server.models import Submission
from server.people.dependencies import OrganiserDep, PartsDep, SubmitterDep
from server.request_context import note
from server.submissions.schemas import SubmissionView, submission_view
from server.withdrawals import service
from server.withdrawals.schemas import WithdrawalCreate

router = APIRouter(tags=["submissions"])


@router.post("/submissions/{submission_id}/withdrawal")
def withdraw_submission(
    submission_id: str, body: WithdrawalCreate, parts: PartsDep, caller: SubmitterDep
) -> SubmissionView:
    """Withdraw a submission, for its submitter and organisers. It stays where it is, unranked.

    What waits for it is cancelled, a replay that has begun goes on. Only an organiser can undo it.
    """
    note(submission_id=submission_id)
    with parts.database.write() as session:
        return _view(session, service.withdraw(session, caller, submission_id, body.reason))


@router.post("/submissions/{submission_id}/reinstatement")
def reinstate_submission(
    submission_id: str, body: WithdrawalCreate, parts: PartsDep, caller: OrganiserDep
) -> SubmissionView:
    """Let a withdrawn submission rank again."""
    note(submission_id=submission_id)
    with parts.database.write() as session:
        return _view(session, service.reinstate(session, caller, submission_id, body.reason))


def _view(session: Session, submission: Submission) -> SubmissionView:
    session.flush()
    session.refresh(submission)
    version = definition(session, submission.benchmark_sha256).version
    return submission_view(submission, benchmark_version=version, costs=BookCosts(session))

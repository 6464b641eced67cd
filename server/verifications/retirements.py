"""Retire a holder that can't be trained any more: the previous holder that can be follows."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.models import Submission
from server.base.request_context import note
from server.base.services import ServicesDep
from server.people.audit import Subject, record
from server.people.dependencies import Caller, OrganiserDep
from server.submissions.service import find_submission
from server.submissions.withdrawals import WithdrawalCreate, view_of
from server.verifications.first_place import read_first_places

router = APIRouter(tags=["submissions"])


def retire(session: Session, caller: Caller, submission_id: str, reason: str) -> Submission:
    """Retire the holder of a board; written to the audit log. Its row and its record stay."""
    submission = find_submission(session, submission_id)
    places = read_first_places(session, submission.benchmark_id).values()
    holders = {place.holder.submission_id for place in places if place.holder is not None}
    if submission_id not in holders:
        raise ConflictError(
            f"Submission {submission_id} is not the holder of a board, and only a holder retires."
        )
    retirement: dict[str, Any] = {"at": utc_now().isoformat(), "by": caller.name, "reason": reason}
    submission.retirement = retirement
    raise_board_version(session, submission.benchmark_id, submission_id=submission_id)
    subject = Subject("submission", submission_id)
    after = {"retirement": retirement}
    record(session, caller, "submission.retire", subject, reason=reason, before=None, after=after)
    return submission


@router.post("/submissions/{submission_id}/retirement")
def retire_submission(
    submission_id: str, body: WithdrawalCreate, services: ServicesDep, caller: OrganiserDep
) -> SubmissionView:
    """Take first place from a holder that can't be trained any more, with the reason.

    The previous holder that can be trained follows. The records keep the retired one. A
    reinstatement undoes it.
    """
    note(submission_id=submission_id)
    with services.database.write() as session:
        return view_of(session, retire(session, caller, submission_id, body.reason))

"""Retire a holder that can't be trained any more: the previous holder that can be follows."""

from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.request_context import note
from server.people.callers import Caller
from server.people.declared import Routes
from server.submissions.lists import find_submission
from server.submissions.standing_changes import WithdrawalCreate, changed_standing
from server.submissions.views import changed_view
from server.verifications.first_place import read_first_places

router = Routes(tags=["submissions"])


@router.command("/submissions/{submission_id}/retirement", role="organiser")
def retire_submission(
    session: Session, caller: Caller, submission_id: str, body: WithdrawalCreate
) -> SubmissionView:
    """Take first place from a holder that can't be trained any more, with the reason.

    The previous holder that can be trained follows. The records keep the retired one. A
    reinstatement undoes it.
    """
    note(submission_id=submission_id)
    submission = find_submission(session, submission_id)
    places = read_first_places(session, submission.benchmark_id).values()
    holders = {place.holder.submission_id for place in places if place.holder is not None}
    if submission_id not in holders:
        raise ConflictError(
            f"Submission {submission_id} is not the holder of a board, and only a holder retires."
        )
    with changed_standing(session, caller, "submission.retire", submission, body.reason):
        at = utc_now().isoformat()
        submission.retirement = {"at": at, "by": caller.name, "reason": body.reason}
    return changed_view(session, submission)

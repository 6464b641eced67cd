"""Logs of a submission that somebody else has handed in before: the same bytes or training."""

from sqlalchemy.orm import Session

from server.models import Submission
from server.submissions.earlier_logs import copies_of_others


def find_elsewhere(session: Session, submission: Submission) -> dict[str, str]:
    """By file, which run of another submitter's earlier submission a run is.

    As everybody may read of it: a reason stays when an embargo is over, and before.
    """
    return {
        copy.file: "a run of a submission that was under embargo"
        if hidden
        else f"{copy.earlier.run.file} of submission {copy.earlier.submission_id}"
        for copy, hidden in copies_of_others(session, submission)
    }

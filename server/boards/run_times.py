"""The times of the runs behind the rows of a board's page."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.models import PoolRun, RunRow, Submission


def times_of_runs(session: Session, submission_ids: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of the runs that reached the target, by submission.

    Of a measured one they are the sealed runs that count, of any other those of its logs.
    """
    sealed = (
        select(Submission.id, PoolRun.seconds)
        .join(PoolRun, PoolRun.pool_id == Submission.pool_id)
        .where(
            Submission.id.in_(submission_ids),
            Submission.evidence == "measured",
        )
        .order_by(PoolRun.verification_id, PoolRun.index)
    )
    own = (
        select(RunRow.submission_id, RunRow.tta_seconds)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            Submission.id.in_(submission_ids),
            Submission.evidence != "measured",
        )
        .order_by(RunRow.index)
    )
    found: defaultdict[str, list[float]] = defaultdict(list)
    for statement in (sealed, own):
        for submission_id, seconds in session.execute(statement):
            if seconds is not None:
                found[submission_id].append(seconds)
    return dict(found)

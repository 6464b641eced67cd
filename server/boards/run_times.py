"""The measured runs of submissions, and the times of the runs behind the rows of a page."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from server.base.models import PoolRun, Submission
from server.submissions.service import run_times


def measured_runs(session: Session, *which: ColumnElement[bool]) -> defaultdict[str, list[Any]]:
    """Seconds and epochs of the measured runs of some submissions, in order."""
    statement = (
        select(Submission.id, PoolRun.seconds, PoolRun.epochs)
        .join(PoolRun, PoolRun.pool_id == Submission.pool_id)
        .where(*which)
        .order_by(Submission.id, PoolRun.verification_id, PoolRun.index)
    )
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in session.execute(statement):
        found[row.id].append(row)
    return found


def times_of_runs(session: Session, submission_ids: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of the runs that reached the target, by submission.

    Of a measured one they are the measured runs that count, of any other those of its logs.
    """
    named = Submission.id.in_(submission_ids)
    found = dict(run_times(session, named, Submission.evidence != "measured"))
    for name, runs in measured_runs(session, named, Submission.evidence == "measured").items():
        found[name] = [run.seconds for run in runs if run.seconds is not None]
    return found

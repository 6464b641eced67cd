"""What the runs of submissions took, for tests of who is faster."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from server.models import RunRow, Submission
from server.viewer import seeing_figures


def run_times(session: Session, *which: ColumnElement[bool]) -> dict[str, list[float]]:
    """Seconds of the runs that reached the target, as measured, by submission."""
    statement = (
        select(RunRow.submission_id, RunRow.tta_seconds)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
    )
    times: defaultdict[str, list[float]] = defaultdict(list)
    with seeing_figures(session):
        rows = session.execute(statement)
    for submission_id, seconds in rows:
        if seconds is not None:
            times[submission_id].append(seconds)
    return times


def convergence_factor(tta_seconds: float | None, result: Mapping[str, Any]) -> float:
    """What a submission's time was multiplied by for its convergence, 1 where it was not."""
    raw = result.get("raw_tta_seconds")
    return tta_seconds / raw if tta_seconds and raw else 1.0

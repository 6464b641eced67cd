"""A log is one run of one submission: who hands it in again is told where it is."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.errors import ConflictError
from server.models import RunRow, Submission
from server.submissions.rows import Row

MOST_TOLD = 20


def refuse_same_logs(session: Session, submission: Submission, runs: Sequence[Row]) -> None:
    """Raise ConflictError where a log is, byte for byte, in another submission of the benchmark.

    A withdrawn submission leaves its logs free: so a wrong claim is put right.
    """
    files = {run["log_sha256"]: run["file"] for run in runs}
    found = session.execute(
        select(RunRow.file, RunRow.log_sha256, Submission.id, Submission.embargoed)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            RunRow.log_sha256.in_(files),
            Submission.id != submission.id,
            Submission.benchmark_id == submission.benchmark_id,
            Submission.withdrawn_at.is_(None),
        )
        .order_by(RunRow.submission_id, RunRow.index)
        .limit(MOST_TOLD)
    ).all()
    if not found:
        return
    problems = [
        {
            "file": files[row.log_sha256],
            "line": None,
            "field": "runs",
            "message": "byte for byte " + _named(row.file, row.id, hidden=row.embargoed),
            "expected": "the log of a training that was not handed in before",
        }
        for row in found
    ]
    first = problems[0]
    raise ConflictError(
        f"{first['file']} is {first['message']}. A log is handed in once: send the logs of other "
        "trainings, or withdraw that submission first if it is yours and wrong.",
        problems=problems,
    )


def _named(file: str, submission_id: str, *, hidden: bool) -> str:
    """Name a submission with its address, unless it is under embargo."""
    if hidden:
        return "a log of another submission, which is under embargo"
    return f"{file} of submission {submission_id} (/submissions/{submission_id})"

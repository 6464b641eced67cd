"""Who held the record of a benchmark when."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.records import Contender, record_history
from server.leaderboard.service import board_versions, kept_for_board
from server.models import Submission, User
from server.records.schemas import DivisionRecords, NoRecordView, RecordList, RecordView
from server.submissions.run_times import convergence_factor, run_times
from server.submissions.visibility import ranks


def list_records(
    session: Session, benchmark: Benchmark, *, version: int | None = None
) -> RecordList:
    """The records of each division of a benchmark, found once for each version of its board.

    The session must be one that only reads; nobody may change the answer. `version` saves the
    statement that asks for it.
    """
    return kept_for_board(
        session,
        benchmark.benchmark_id,
        "records",
        lambda: _find_records(session, benchmark),
        version=version,
    )


def records_by_benchmark(
    session: Session, benchmarks: Mapping[str, Benchmark]
) -> dict[str, RecordList]:
    """The records of those of the benchmarks that have a submission, by benchmark id."""
    # Versions come first: a write in between leaves a list that the next read derives again.
    versions = board_versions(session)
    return {
        benchmark_id: list_records(session, benchmark, version=versions[benchmark_id])
        for benchmark_id, benchmark in benchmarks.items()
        if benchmark_id in versions
    }


def standing_division(records: RecordList | None) -> DivisionRecords | None:
    """The division whose standing record is the lowest; None before the first record."""
    divisions = [d for d in records.divisions if d.records] if records is not None else []
    return min(divisions, key=lambda d: d.records[-1].tta_seconds, default=None)


def _find_records(session: Session, benchmark: Benchmark) -> RecordList:
    """The records of each division of a benchmark, from all its trainings that may rank."""
    of_benchmark = Submission.benchmark_id == benchmark.benchmark_id
    trainings = (of_benchmark, Submission.kind == "train", ranks())
    rows = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.division,
            Submission.status,
            Submission.eligible,
            Submission.tta_seconds,
            Submission.result,
            Submission.organisation,
            Submission.submitted_at,
            Submission.submitted_on,
            User.name.label("submitter"),
        )
        .join(Submission.user)
        .where(*trainings)
    ).all()
    times = run_times(session, *trainings)
    return RecordList(
        benchmark=benchmark.benchmark_id,
        divisions=[
            _of_division(division, [row for row in rows if row.division == division], times)
            for division in benchmark.divisions
        ],
    )


def _of_division(
    division: str, rows: Sequence[Any], times: Mapping[str, Sequence[float]]
) -> DivisionRecords:
    history = record_history(_contender(row, times.get(row.id, ())) for row in rows)
    named = {
        row.id: {
            "submitter": row.organisation or row.submitter,
            "model": row.model,
            "status": row.status,
        }
        for row in rows
    }
    return DivisionRecords(
        division=division,
        records=[RecordView(**asdict(r), **named[r.submission_id]) for r in history.records],
        not_records=[
            NoRecordView(**asdict(r), **named[r.submission_id]) for r in history.not_records
        ],
    )


def _contender(row: Any, seconds: Sequence[float]) -> Contender:
    factor = convergence_factor(row.tta_seconds, row.result)
    return Contender(
        submission_id=row.id,
        date=(row.submitted_on or row.submitted_at).isoformat(),
        tta_seconds=row.tta_seconds,
        runs=[s * factor for s in seconds],
        eligible=row.eligible and row.status != "rejected",
    )

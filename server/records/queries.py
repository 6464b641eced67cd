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
from server.records.contenders import contenders_that_matter
from server.records.schemas import DivisionRecords, NoRecordView, RecordList, RecordView
from server.records.tries import count_tries


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
    """The records of each division of a benchmark, among all its trainings that may rank."""
    found = contenders_that_matter(session, benchmark.benchmark_id)
    return RecordList(
        benchmark=benchmark.benchmark_id,
        divisions=[
            _of_division(session, benchmark.benchmark_id, division, found.get(division, ()))
            for division in benchmark.divisions
        ],
    )


def _of_division(
    session: Session, benchmark_id: str, division: str, contenders: Sequence[Contender]
) -> DivisionRecords:
    history = record_history(contenders)
    ids = [r.submission_id for r in history.records]
    named = _names(session, ids + [r.submission_id for r in history.not_records])
    tries = count_tries(session, benchmark_id, division, ids)
    return DivisionRecords(
        division=division,
        records=[
            RecordView(**asdict(r), **named[r.submission_id], tries=tries[r.submission_id])
            for r in history.records
        ],
        not_records=[
            NoRecordView(**asdict(r), **named[r.submission_id]) for r in history.not_records
        ],
    )


def _names(session: Session, submission_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Whose a submission is, of which model, and its status."""
    rows = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.status,
            Submission.organisation,
            User.name.label("submitter"),
        )
        .join(Submission.user)
        .where(Submission.id.in_(submission_ids))
    )
    return {
        row.id: {
            "submitter": row.organisation or row.submitter,
            "model": row.model,
            "status": row.status,
        }
        for row in rows
    }

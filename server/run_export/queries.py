"""Reading runs by the page, and each page in small portions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, and_, or_, select
from sqlalchemy.orm import Session

from server.benchmarks.queries import definition
from server.models import RunRow, Submission, User
from server.run_export.schemas import ParameterSetting, RunMeasure, RunRecord
from server.submissions.queries import read_cursor, write_cursor
from server.submissions.schemas import SystemView


@dataclass(frozen=True)
class RunPage:
    """Which runs are on a page, in order, and where the next one begins."""

    row_ids: tuple[int, ...]
    next_cursor: str | None


def read_page(session: Session, benchmark_id: str, *, limit: int, cursor: str | None) -> RunPage:
    """A page of a benchmark's runs: newest submission first, its runs in order."""
    query = (
        select(RunRow.id.label("row_id"), RunRow.index, Submission.id, Submission.submitted_at)
        .join(Submission, RunRow.submission_id == Submission.id)
        .where(Submission.benchmark_id == benchmark_id)
        .order_by(Submission.submitted_at.desc(), Submission.id.desc(), RunRow.index)
    )
    if cursor is not None:
        place, _, index = cursor.rpartition(".")
        moment, last_id = read_cursor(place)
        same_moment = Submission.submitted_at == moment
        query = query.where(
            or_(
                Submission.submitted_at < moment,
                and_(same_moment, Submission.id < last_id),
                and_(same_moment, Submission.id == last_id, RunRow.index > int(index)),
            )
        )
    found: list[Any] = list(session.execute(query.limit(limit + 1)))
    page = found[:limit]
    following = f"{write_cursor(page[-1])}.{page[-1].index}" if len(found) > limit else None
    return RunPage(tuple(row.row_id for row in page), following)


def read_records(session: Session, row_ids: Sequence[int]) -> list[RunRecord]:
    """The records of these runs, in this order; without their curves."""
    rows = {
        row.row_id: row
        for row in session.execute(_with_submissions().where(RunRow.id.in_(row_ids)))
    }
    return [_record(session, rows[row_id]) for row_id in row_ids if row_id in rows]


def _with_submissions() -> Select[*tuple[Any, ...]]:
    """What a record is made of: columns alone, so that nothing else is read along."""
    return (
        select(
            RunRow.id.label("row_id"),
            RunRow.index,
            RunRow.seed,
            RunRow.batch_size,
            RunRow.reached,
            RunRow.best_quality,
            RunRow.tta_seconds,
            RunRow.epochs_to_target,
            RunRow.log_sha256,
            Submission.id,
            Submission.benchmark_id,
            Submission.benchmark_sha256,
            Submission.division,
            Submission.organisation,
            User.name.label("user_name"),
            Submission.submitted_at,
            Submission.submitted_on,
            Submission.archive,
            Submission.status,
            Submission.withdrawn_at,
            Submission.model,
            Submission.framework,
            Submission.hyperparameters,
            Submission.system,
        )
        .join(Submission, RunRow.submission_id == Submission.id)
        .join(User, Submission.user_id == User.id)
    )


def _record(session: Session, row: Row[Any]) -> RunRecord:
    benchmark = definition(session, row.benchmark_sha256)
    return RunRecord(
        benchmark=row.benchmark_id,
        benchmark_version=benchmark.version,
        benchmark_sha256=row.benchmark_sha256,
        division=row.division,
        submission_id=row.id,
        submitter=row.organisation or row.user_name,
        submitted_at=row.submitted_at,
        submitted_on=row.submitted_on,
        archive=row.archive,
        status=row.status,
        withdrawn=row.withdrawn_at is not None,
        run=row.index,
        seed=row.seed,
        batch_size=row.batch_size,
        reached=row.reached,
        model=row.model,
        framework=row.framework,
        parameter_setting=[
            ParameterSetting(name=name, value=value) for name, value in row.hyperparameters.items()
        ],
        evaluations=[
            RunMeasure(
                measure=benchmark.target.metric,
                value=row.best_quality,
                seconds=row.tta_seconds,
                epoch=row.epochs_to_target,
            )
        ],
        system=SystemView(**row.system),
        log_sha256=row.log_sha256,
    )

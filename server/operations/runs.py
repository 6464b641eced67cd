"""Runs of a benchmark as flat JSON records, a page at a time, for programs that study many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row, Select, and_, or_, select
from sqlalchemy.orm import Session

from finishline.api.submissions import (
    ParameterSetting,
    RunExport,
    RunMeasure,
    RunRecord,
    SystemView,
)
from server.base.database import Database
from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, RunRow, Submission, User
from server.base.services import ServicesDep
from server.benchmarks.queries import definition, find_benchmark
from server.submissions.service import read_cursor, write_cursor

# The moment and id of a submission, then the index of a run.
CURSOR_PATTERN = r"^[0-9]{1,17}\.[a-z0-9]{1,20}\.[0-9]{1,5}$"

LimitDep = Annotated[int, Query(ge=1, le=1000)]
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]


@dataclass(frozen=True)
class RunPage:
    """Runs on a page, in order, and the cursor of the next page."""

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
    """Columns of a record alone, so that nothing else is read along."""
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
            SUBMITTER,
            DISPLAY_NAME,
            Submission.submitted_at,
            PublishedResult.published_on,
            (Submission.evidence == "published").label("archive"),
            Submission.status,
            Submission.withdrawn_at,
            Submission.model,
            Submission.framework,
            Submission.hyperparameters,
            Submission.system,
        )
        .join(Submission, RunRow.submission_id == Submission.id)
        .join(User, Submission.user_id == User.id)
        .outerjoin(Submission.published)
    )


def _record(session: Session, row: Row[Any]) -> RunRecord:
    benchmark = definition(session, row.benchmark_sha256)
    return RunRecord.of(
        row,
        benchmark=row.benchmark_id,
        benchmark_version=benchmark.version,
        submission_id=row.id,
        submitted_on=row.published_on,
        withdrawn=row.withdrawn_at is not None,
        run=row.index,
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
    )


router = APIRouter(tags=["benchmarks"])

# A submitter's words about a run may have 256 KiB, so this many take at most 16 MiB.
RUNS_AT_ONCE = 64


@router.get("/benchmarks/{benchmark_id}/runs.json", response_model=RunExport)
def export_runs(
    benchmark_id: str,
    services: ServicesDep,
    request: Request,
    limit: LimitDep = 1000,
    cursor: CursorDep = None,
) -> Response:
    """Every run of a benchmark as a flat record, those of the newest submission first.

    An answer has up to `limit` runs; the header `Link` and `next_cursor` lead to the next.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        page = read_page(session, benchmark.benchmark_id, limit=limit, cursor=cursor)
    headers = {}
    if page.next_cursor is not None:
        following = request.url.include_query_params(cursor=page.next_cursor)
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    pieces = write_page(services.database, benchmark.benchmark_id, page)
    return StreamingResponse(pieces, media_type="application/json", headers=headers)


def write_page(database: Database, benchmark_id: str, page: RunPage) -> Iterator[bytes]:
    """The JSON of a page, piece by piece.

    A portion is read when it is its turn, and no transaction waits for a slow reader.
    """
    head = orjson.dumps({"benchmark": benchmark_id, "next_cursor": page.next_cursor})
    yield head.removesuffix(b"}") + b',"runs":['
    separator = b""
    for start in range(0, len(page.row_ids), RUNS_AT_ONCE):
        with database.read() as session:
            records = read_records(session, page.row_ids[start : start + RUNS_AT_ONCE])
        for record in records:
            yield separator + orjson.dumps(record.model_dump(mode="json"))
            separator = b","
    yield b"]}"

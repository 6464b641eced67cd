"""Reading a board: rank everything of a division, then filter, sort and cut."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Kind
from rules.ranking import Ranked, Standing, rank
from server.errors import ConflictError, ContentError
from server.leaderboard.groups import groups_of, official_rows
from server.leaderboard.lens import lens_of, lens_rows, lens_view
from server.leaderboard.schemas import BoardEntry, BoardQuery, BoardView
from server.leaderboard.service import board_version
from server.models import Submission, User
from server.submissions.schemas import SystemView

COLUMNS = (
    Submission.id,
    Submission.model,
    Submission.framework,
    Submission.division,
    Submission.status,
    Submission.system,
    Submission.result,
    Submission.eligible,
    Submission.tta_seconds,
    Submission.cost_usd,
    Submission.latency_ms,
    Submission.cost_usd_per_10000,
    Submission.measured_latency_ms,
    Submission.submitted_at,
    Submission.submitted_on,
    Submission.organisation,
    Submission.precision,
    Submission.precision_measured,
    User.name.label("submitter"),
)

SORT_KEYS: dict[str, Callable[[BoardEntry], Any]] = {
    "rank": lambda e: e.rank,
    "model": lambda e: e.model.casefold(),
    "submitter": lambda e: e.submitter.casefold(),
    "system": lambda e: e.system.name.casefold(),
    "tta": lambda e: e.tta_seconds,
    "cv": lambda e: e.cv_percent,
    "epochs": lambda e: e.epochs_to_target,
    "cost": lambda e: e.cost_usd,
    "latency": lambda e: e.latency_ms,
    "measured_latency": lambda e: e.measured_latency_ms,
    "inference_cost": lambda e: e.cost_usd_per_10000,
    "quality": lambda e: e.quality,
    "status": lambda e: e.status,
    "date": lambda e: (e.submitted_on or e.submitted_at).isoformat(),
}


def read_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> BoardView:
    """The part of a benchmark's board that a query asks for.

    A rank and a tie group are among all submissions of the division and of the kind that the metric
    ranks, whatever else is filtered. Raises RuleError for a target that the benchmark cannot have.
    """
    benchmark_id = benchmark.benchmark_id
    lens = lens_of(benchmark, query)
    version = board_version(session, benchmark_id)
    which = [Submission.benchmark_id == benchmark_id, Submission.kind == query.kind]
    if query.division is not None:
        which.append(Submission.division == query.division)
    statement = select(*COLUMNS).join(Submission.user).where(*which)
    found = {row.id: row for row in session.execute(statement)}
    if lens is None:
        rows = official_rows(session, found, which)
    else:
        rows = lens_rows(session, found, which, lens, benchmark)
    places = rank([_standing(row) for row in rows.values()], metric=query.metric)
    groups = groups_of(places, rows, metric=query.metric)
    entries = [
        _entry(rows[place.submission_id], place, query.kind).model_copy(
            update=groups[place.submission_id]
        )
        for place in places
    ]
    chosen = _sort([entry for entry in entries if _matches(entry, query)], query)
    start = _read_cursor(query.cursor, version)
    page = chosen[start : start + query.limit]
    end = start + len(page)
    return BoardView(
        benchmark=benchmark_id,
        kind=query.kind,
        division=query.division,
        metric=query.metric,
        version=version,
        total=len(chosen),
        next_cursor=f"{version}.{end}" if end < len(chosen) else None,
        entries=page,
        lens=None if lens is None else lens_view(lens, benchmark),
    )


def _standing(row: Any) -> Standing:
    return Standing(
        submission_id=row.id,
        status=row.status,
        submitted_at=(row.submitted_on or row.submitted_at).isoformat(),
        tta_seconds=row.tta_seconds,
        cost_usd=row.cost_usd,
        latency_ms=row.latency_ms,
        eligible=row.eligible,
        cost_usd_per_10000=row.cost_usd_per_10000,
    )


def _entry(row: Any, place: Ranked, kind: Kind) -> BoardEntry:
    result, training = row.result, kind == "train"
    return BoardEntry(
        rank=place.rank,
        tied=place.tied,
        unranked_reason=place.unranked_reason,
        submission_id=row.id,
        submitter=row.organisation or row.submitter,
        model=row.model,
        framework=row.framework,
        division=row.division,
        status=row.status,
        system=SystemView(**row.system),
        tta_seconds=row.tta_seconds,
        tta_display=result.get("tta_display"),
        tta_low_seconds=result.get("tta_low_seconds"),
        tta_high_seconds=result.get("tta_high_seconds"),
        cv_percent=result.get("cv_percent"),
        runs_reached=result["reached"] if training else 0,
        runs_started=result["started"] if training else 0,
        epochs_to_target=result.get("epochs_to_target"),
        cost_usd=row.cost_usd,
        latency_ms=row.latency_ms,
        cost_usd_per_10000=row.cost_usd_per_10000,
        measured_latency_ms=row.measured_latency_ms,
        quality=result["best_quality" if training else "quality"],
        evaluation_interval_seconds=result.get("evaluation_interval_seconds"),
        submitted_at=row.submitted_at,
        submitted_on=row.submitted_on,
        raw_tta_seconds=result.get("raw_tta_seconds", row.tta_seconds),
        rcp=result.get("rcp"),
        precision=row.precision,
        precision_measured=row.precision_measured,
    )


def _matches(entry: BoardEntry, query: BoardQuery) -> bool:
    if query.status is not None and entry.status != query.status:
        return False
    if query.q is None:
        return True
    texts = (
        entry.model,
        entry.submitter,
        entry.framework,
        entry.system.name,
        entry.system.hardware_class,
        entry.system.accelerator or "",
    )
    return query.q.casefold() in "\n".join(texts).casefold()


def _sort(entries: list[BoardEntry], query: BoardQuery) -> list[BoardEntry]:
    """By one column; absent figures stand last whichever way it is sorted."""
    key = SORT_KEYS[query.sort]
    present = [entry for entry in entries if key(entry) is not None]
    absent = [entry for entry in entries if key(entry) is None]
    return sorted(present, key=key, reverse=query.order == "desc") + absent


def _read_cursor(cursor: str | None, version: int) -> int:
    if cursor is None:
        return 0
    of_version, _, start = cursor.partition(".")
    if not (of_version.isascii() and of_version.isdigit() and start.isascii() and start.isdigit()):
        raise ContentError("The cursor is not one: use the next_cursor of an earlier answer.")
    if int(of_version) != version:
        raise ConflictError("The board has changed since that page; start again without a cursor.")
    return int(start)

"""Place of a submission on its board, and its neighbours."""

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import place_words, ranked_seconds
from server.base.board_versions import board_version
from server.base.models import PoolRun, Submission
from server.boards.board import RankedBoard, query_of, ranked_board
from server.boards.query import BoardQuery
from server.boards.rows import PlacedRow
from web.compare import neighbour_names
from web.names import hardware_words

Context = dict[str, Any]
FURTHER = 2


def official_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> RankedBoard:
    """The board of a query at the version of today."""
    version = board_version(session, benchmark.benchmark_id)
    return ranked_board(session, benchmark, query, version=version)


def named_entry(placed: PlacedRow) -> Context:
    """A board entry with the name of its system, and its hardware in words."""
    system = placed["system"]
    return placed.entry() | {"hardware": hardware_words(system), "system": system["name"]}


def place_of(session: Session, benchmark: Benchmark, submission: Submission) -> Context | None:
    """The place of a submission, and the leader and the neighbours it may be compared with.

    None where it is not on the board.
    """
    board = official_board(session, benchmark, query_of(benchmark, submission))
    found = board.find(submission.id)
    if found is None:
        return None
    at, ranked = board.order.position(submission.id), board.order.numbered
    beside = ((0, "the first"), (at - 1, "the one before"), (at + 1, "the next"))
    others: dict[int, Context] = {}
    for index, why in beside if at < ranked else ():
        if 0 <= index < ranked and index != at and index not in others:
            others[index] = named_entry(board.page(index, index + 1)[0]) | {"why": why}
    runs = select(func.count()).where(PoolRun.pool_id == submission.pool_id)
    return named_entry(found) | {
        "ranked": ranked,
        "others": list(others.values()),
        "around": _around(session, board, found),
        "pool_runs": session.scalar(runs) or 0,
    }


def _around(session: Session, board: RankedBoard, found: PlacedRow) -> list[Context]:
    """The rows up to two places from one by their figure, among all that have a number."""
    numbered = list(board.order.places[: board.order.numbered])
    numbered.sort(key=lambda place: place.value or math.inf)
    names = [place.submission_id for place in numbered]
    around = [found.entry()]
    if found["submission_id"] in names:
        at = names.index(found["submission_id"])
        near = (board.find(name) for name in names[max(0, at - FURTHER) : at + FURTHER + 1])
        around = [placed.entry() for placed in near if placed is not None]
    named = zip(around, neighbour_names(_with_settings(session, around)), strict=True)
    return [_timed(entry, name) for entry, name in named]


def _with_settings(session: Session, around: Sequence[Context]) -> list[Context]:
    """Neighbours as they are named, with the settings of their claims."""
    ids = [entry["submission_id"] for entry in around]
    chosen = select(Submission.id, Submission.hyperparameters).where(Submission.id.in_(ids))
    settings = {row.id: row.hyperparameters for row in session.execute(chosen)}
    return [
        entry | {"runs": (), "hyperparameters": settings.get(entry["submission_id"]) or {}}
        for entry in around
    ]


def _seconds(entry: Context) -> float | None:
    if entry["latency_ms"] is not None and entry["tta_seconds"] is None:
        return float(entry["latency_ms"]) / 1000
    return ranked_seconds(entry)


def _timed(entry: Context, name: str) -> Context:
    of = "measured" if entry["evidence"] == "measured" else "tta"
    return {
        "submission_id": entry["submission_id"],
        "place": place_words(entry),
        "name": name,
        "seconds": _seconds(entry),
        "low": entry[f"{of}_low_seconds"],
        "high": entry[f"{of}_high_seconds"],
    }

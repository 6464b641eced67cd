"""Reading a board: rank everything of a division, then filter, sort and cut."""

from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from server.leaderboard.divisions import in_division
from server.leaderboard.lens import lens_of, lens_view
from server.leaderboard.other_rules import other_rules
from server.leaderboard.price import price_of, price_view
from server.leaderboard.ranked import RankedBoard, ranked_board
from server.leaderboard.schemas import BoardQuery
from server.leaderboard.selection import first_place, select_rows
from server.leaderboard.service import board_version

Board = dict[str, Any]


def read_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Board:
    """The part of a benchmark's board that a query asks for, with the fields of BoardView.

    A rank is among all submissions of the division and of the kind that the metric
    ranks, whatever else is filtered. Raises RuleError for a target that the benchmark cannot have.
    """
    query = in_division(session, benchmark, query)
    version = board_version(session, benchmark.benchmark_id)
    ranked = ranked_board(session, benchmark, query, version=version)
    return cut_board(session, ranked, benchmark, query, version=version)


def cut_board(
    session: Session,
    ranked: RankedBoard,
    benchmark: Benchmark,
    query: BoardQuery,
    *,
    version: int,
) -> Board:
    """The page of a ranked board that a query asks for, with the fields of BoardView."""
    chosen = select_rows(ranked.rows, query)
    start = first_place(query, version)
    page = chosen[start : start + query.limit]
    end = start + len(page)
    total = len(chosen)
    lens, price = lens_of(benchmark, query), price_of(query)
    return {
        "benchmark": benchmark.benchmark_id,
        "kind": query.kind,
        "division": query.division,
        "metric": query.metric,
        "version": version,
        "total": total,
        "next_cursor": f"{version}.{end}" if page and end < total else None,
        "entries": [placed.entry() for placed in page],
        "first": start + 1 if page else None,
        "lens": None if lens is None else lens_view(lens, benchmark).model_dump(),
        "price": None if price is None else price_view(price).model_dump(),
        "other_rules": other_rules(
            session, benchmark, (placed.row.shown["benchmark_sha256"] for placed in page)
        ),
    }

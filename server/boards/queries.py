"""Reading a board: rank everything of a division, then filter, sort and cut."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking.ranking import FIRST_METRIC
from server.board_versions import board_version
from server.boards.lens import lens_of, lens_view
from server.boards.other_rules import other_rules
from server.boards.price import price_of, price_view
from server.boards.ranked import RankedBoard, board_in_division, ranked_board
from server.boards.schemas import BoardQuery
from server.boards.selection import first_place, select_page
from server.models import Submission

Board = dict[str, Any]
# What of a board's entry a submission tells of itself.
OF_SUBMISSION = (
    "rank",
    "provisional_rank",
    "listed_rank",
    "measured_seconds",
    "measured_low_seconds",
    "measured_high_seconds",
    "measured_runs",
    "owners",
    "by_organisers",
    "also_by",
    "not_separated_from",
    "visible_gap_percent",
)


def read_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Board:
    """The part of a benchmark's board that a query asks for, with the fields of BoardView.

    A rank is among all submissions of the division and of the kind that the metric
    ranks, whatever else is filtered. Raises RuleError for a target that the benchmark cannot have.
    """
    version = board_version(session, benchmark.benchmark_id)
    board_of = partial(ranked_board, session, benchmark, version=version)
    query, ranked = board_in_division(benchmark, query, board_of)
    return cut_board(session, ranked, benchmark, query, version=version)


class Standings:
    """Where submissions stand on their boards; each board is looked up once."""

    def __init__(self, session: Session, benchmarks: Mapping[str, Benchmark]) -> None:
        self._session = session
        self._benchmarks = benchmarks
        self._boards: dict[tuple[str, str, str], RankedBoard] = {}

    def of(self, submission: Submission) -> dict[str, Any]:
        """Its rank, measured time and neighbours; empty for one that is on no board."""
        if submission.benchmark_id not in self._benchmarks:
            return {}
        board = self._board(submission.benchmark_id, submission.kind, submission.division)
        if submission.id not in board.found:
            return {}
        place = board.order.position(board.found[submission.id])
        (placed,) = board.page(self._session, place, place + 1)
        return {name: placed.figure(name) for name in OF_SUBMISSION}

    def _board(self, benchmark_id: str, kind: str, division: str) -> RankedBoard:
        key = (benchmark_id, kind, division)
        if key not in self._boards:
            asked = {"metric": FIRST_METRIC[kind], "division": division}
            self._boards[key] = ranked_board(
                self._session,
                self._benchmarks[benchmark_id],
                BoardQuery.model_validate(asked),
                version=board_version(self._session, benchmark_id),
            )
        return self._boards[key]


def cut_board(
    session: Session,
    ranked: RankedBoard,
    benchmark: Benchmark,
    query: BoardQuery,
    *,
    version: int,
) -> Board:
    """The page of a ranked board that a query asks for, with the fields of BoardView."""
    start = first_place(query, version)
    page, total = select_page(session, ranked, query, start)
    end = start + len(page)
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

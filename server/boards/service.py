"""Reading boards: the door of this room, which other rooms import."""

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import select, true
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from server.base.board_versions import board_version
from server.base.models import Submission
from server.benchmarks.phase_queries import current_dates, moment_words, rules_that_differ
from server.benchmarks.queries import definition
from server.boards.cache import BoardCache
from server.boards.comparison import FEWEST, MOST, compare_submissions
from server.boards.encoding import Encoded, answer_board
from server.boards.lens import lens_of, lens_view, price_of, price_view
from server.boards.race import read_ghosts, read_race
from server.boards.ranked import (
    PlacedRow,
    RankedBoard,
    board_as_seen,
    board_in_division,
    query_of,
    ranked_board,
)
from server.boards.ranking import order_of
from server.boards.records import (
    Standing,
    held_record,
    list_records,
    records_by_benchmark,
    standing_by_benchmark,
)
from server.boards.results import board_results
from server.boards.rows import standing_of_new
from server.boards.run_times import times_of_runs
from server.boards.schemas import BoardQuery, PreviewPart
from server.boards.selection import facets_of, first_place, select_page

# Names that other rooms use; they import this module and no other of the room.
__all__ = [
    "FEWEST",
    "MOST",
    "BoardCache",
    "Encoded",
    "PlacedRow",
    "RankedBoard",
    "Standing",
    "Standings",
    "answer_board",
    "board_in_division",
    "board_results",
    "compare_submissions",
    "count_numbered",
    "cut_board",
    "facets_of",
    "held_record",
    "lens_of",
    "list_records",
    "place_of_new",
    "preview_board",
    "query_of",
    "ranked_board",
    "read_ghosts",
    "read_race",
    "records_by_benchmark",
    "standing_by_benchmark",
    "times_of_runs",
]

Board = dict[str, Any]
# Fields of a board entry that the view of a submission repeats.
OF_SUBMISSION = (
    "rank",
    "unranked_reason",
    "measured_seconds",
    "measured_low_seconds",
    "measured_high_seconds",
    "measured_runs",
    "busy",
    "is_holder",
    "not_first",
    "head_to_head",
    "not_separated_from",
    "visible_gap_percent",
)
OF_NEW = ("rank", "unranked_reason")


def read_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Board:
    """The part of a benchmark's board that a query asks for, with the fields of BoardView.

    A rank is among all submissions of the round, the division and the kind that the metric
    ranks, whatever else is filtered.
    """
    version = board_version(session, benchmark.benchmark_id)
    board_of = partial(ranked_board, session, benchmark, version=version)
    query, ranked = board_in_division(benchmark, query, board_of)
    return cut_board(session, ranked, benchmark, query, version=version)


class Standings:
    """Places of submissions on their boards; each board is looked up once."""

    def __init__(self, session: Session, benchmarks: Mapping[str, Benchmark]) -> None:
        self._session = session
        self._benchmarks = benchmarks
        self._boards: dict[tuple[str | None, ...], RankedBoard] = {}

    def of(self, submission: Submission) -> dict[str, Any]:
        """Its rank, measured time and neighbours; empty for one that is on no board."""
        if submission.benchmark_id not in self._benchmarks:
            return {}
        board = self._board(submission)
        if submission.id not in board.found:
            return {}
        place = board.order.position(submission.id)
        (placed,) = board.page(self._session, place, place + 1)
        return {name: placed.figure(name) for name in OF_SUBMISSION}

    def _board(self, submission: Submission) -> RankedBoard:
        benchmark_id = submission.benchmark_id
        benchmark = self._benchmarks[benchmark_id]
        query = query_of(benchmark, submission)
        key = (benchmark_id, query.metric, query.division, query.round, query.hardware_class)
        if key not in self._boards:
            self._boards[key] = ranked_board(
                self._session,
                benchmark,
                query,
                version=board_version(self._session, benchmark_id),
            )
        return self._boards[key]


def count_numbered(session: Session, benchmark: Benchmark, submission: Submission) -> int:
    """Number of rows that are numbered together with a submission."""
    version = board_version(session, benchmark.benchmark_id)
    board = ranked_board(session, benchmark, query_of(benchmark, submission), version=version)
    return board.order.numbered


def place_of_new(session: Session, benchmark: Benchmark, submission: Submission) -> dict[str, Any]:
    """Place that a submission which is not stored would take on its board, as everybody sees it."""
    version = board_version(session, benchmark.benchmark_id)
    query = query_of(benchmark, submission)
    board = ranked_board(session, benchmark, query, version=version)
    new = standing_of_new(submission)
    order = order_of([*board.found.values(), new], metric=query.metric)
    place = order.place(order.position(new.submission_id))
    return {name: getattr(place, name) for name in OF_NEW} | {"entries": len(order)}


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
        "round": query.round,
        "hardware_class": ranked.hardware_class,
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


log = logging.getLogger(__name__)

NOTHING_HIDDEN = "Nothing is under embargo: this is the public board."


def preview_board(
    session: Session, benchmark: Benchmark, query: BoardQuery
) -> tuple[Board, RankedBoard]:
    """The page that a query asks for, with the fields of PreviewView, and its board.

    The session shows submissions under embargo: callers check first that the reader may see them.
    """
    benchmark_id = benchmark.benchmark_id
    version = board_version(session, benchmark_id)
    board_of = partial(board_as_seen, session, benchmark)
    query, ranked = board_in_division(benchmark, query, board_of)
    board = cut_board(session, ranked, benchmark, query, version=version)
    dates = current_dates(session, benchmark_id)
    part = _part(
        ranked,
        board,
        hidden=_hidden(session, benchmark_id),
        until=None if dates is None else dates.embargo_until,
    )
    if part.hidden_total:
        # The log line also carries the id of the token's user.
        log.info("the board of %s was looked at under embargo", benchmark_id)
    return board | {"preview": part.model_dump(mode="json")}, ranked


def _hidden(session: Session, benchmark_id: str) -> frozenset[str]:
    of_it = (Submission.benchmark_id == benchmark_id, Submission.embargoed.is_(true()))
    return frozenset(session.scalars(select(Submission.id).where(*of_it)))


def _part(
    ranked: RankedBoard, board: Board, *, hidden: Collection[str], until: datetime | None
) -> PreviewPart:
    hidden_total = sum(name in hidden for name in ranked.found)
    return PreviewPart(
        embargo_until=until,
        hidden=[
            entry["submission_id"] for entry in board["entries"] if entry["submission_id"] in hidden
        ],
        hidden_total=hidden_total,
        note=_note(hidden_total, of=len(ranked), until=until),
    )


def _note(hidden_total: int, *, of: int, until: datetime | None) -> str:
    if not hidden_total:
        return NOTHING_HIDDEN
    date = f", until {moment_words(until)}," if until is not None else ""
    are = "is" if hidden_total == 1 else "are"
    return (
        f"Only organisers see this: the board as if its embargo{date} had ended. "
        f"{hidden_total} of its {of} submission{'' if of == 1 else 's'} {are} hidden from the "
        "public."
    )


def other_rules(session: Session, benchmark: Benchmark, sha256s: Iterable[str]) -> dict[str, str]:
    """Describe how the rules of definitions differ from those in force, by their SHA-256.

    Definitions with figures that are comparable with those scored now are left out.
    """
    earlier = sorted({sha256 for sha256 in sha256s if sha256 != benchmark.sha256})
    words = {sha256: _words(session, benchmark, sha256) for sha256 in earlier}
    return {sha256: text for sha256, text in words.items() if text is not None}


def _words(session: Session, benchmark: Benchmark, sha256: str) -> str | None:
    try:
        earlier = definition(session, sha256)
    except RuleError:  # Written for an earlier release.
        return f"definition {sha256[:12]}, which cannot be compared"
    differ = rules_that_differ(earlier, benchmark)
    return f"version {earlier.version}, other {', '.join(differ)}" if differ else None

"""A board as it would be if its embargo were over now: for organisers, ranked as it will be.

Nothing of it is kept in memory, where boards are everybody's.
"""

import logging
from collections.abc import Collection
from datetime import datetime
from functools import partial

from sqlalchemy import select, true
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.phases import moment_words
from server.benchmarks.phase_queries import current_dates
from server.board_versions import board_version
from server.boards.queries import Board, cut_board
from server.boards.ranked import RankedBoard, board_as_seen, board_in_division
from server.boards.schemas import BoardQuery, PreviewPart
from server.models import Submission

log = logging.getLogger(__name__)

NOTHING_HIDDEN = "Nothing here is under embargo: this is the board as everybody sees it."


def preview_board(
    session: Session, benchmark: Benchmark, query: BoardQuery
) -> tuple[Board, RankedBoard]:
    """The page that a query asks for, with the fields of PreviewView, and the board it is of.

    The session shows what is under embargo: whoever opens it has checked who asks. Raises RuleError
    for a target that the benchmark cannot have.
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
        # Beside this line stands whose token it was.
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
        f"Only organisers see this: the board as if its embargo{date} were over now. "
        f"{hidden_total} of its {of} submission{'' if of == 1 else 's'} {are} hidden from the "
        "public."
    )

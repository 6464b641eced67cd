"""What the page of a benchmark shows."""

from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.benchmarks.phase_queries import current_phases
from server.benchmarks.phase_schemas import phases_of
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions
from server.benchmarks.schemas import benchmark_view
from server.board_versions import board_version, cached_for_board
from server.boards.service import BoardQuery, board_in_division, cut_board, facets_of, ranked_board
from server.pages.board_refusals import query_instead
from server.pages.explanations import EXPLAIN

Context = dict[str, Any]
DATES = {
    "opens_at": "Opens",
    "freezes_at": "Rules frozen from",
    "closes_at": "Closes",
    "embargo_until": "Results under embargo until",
}


def board_context(session: Session, benchmark: Benchmark, query: BoardQuery) -> Context:
    """A benchmark, the part of its board that is asked for, and how it is scored.

    Raises RuleError for a target that the benchmark cannot have.
    """
    version = board_version(session, benchmark.benchmark_id)
    board_of = partial(ranked_board, session, benchmark, version=version)
    query, ranked = board_in_division(benchmark, query, board_of)
    return _around(session, benchmark, query, version) | {
        "board": cut_board(session, ranked, benchmark, query, version=version),
        "filters": query.model_dump(mode="json", exclude_defaults=True),
        "facets": facets_of(ranked.all_rows(session)),
    }


def refused_context(
    session: Session, benchmark: Benchmark, typed: Context, problems: list[Context]
) -> Context:
    """A benchmark with what was asked of its board and why that gives none.

    `typed` is the query as it came; what of it says which kind of board is kept where it can be.
    """
    version = board_version(session, benchmark.benchmark_id)
    board_of = partial(ranked_board, session, benchmark, version=version)
    query, ranked = board_in_division(benchmark, query_instead(typed, problems), board_of)
    board = cut_board(session, ranked, benchmark, query, version=version)
    return _around(session, benchmark, query, version) | {
        "board": board | {"entries": [], "total": 0, "next_cursor": None, "first": None},
        "filters": typed,
        "facets": facets_of(ranked.all_rows(session)),
        "problems": problems,
    }


def _around(session: Session, benchmark: Benchmark, query: BoardQuery, version: int) -> Context:
    benchmark_id = benchmark.benchmark_id
    counts = count_submissions(session, [benchmark_id]).get(benchmark_id, NO_SUBMISSIONS)
    dates = cached_for_board(
        session, benchmark_id, "dates", lambda: _dates(session, benchmark), version=version
    )
    return {
        "benchmark": benchmark_view(benchmark, counts).model_dump(mode="json"),
        "explanation": EXPLAIN[query.kind](benchmark),
        "dates": dates,
    }


def _dates(session: Session, benchmark: Benchmark) -> list[tuple[str, str]]:
    """The dates of its phases with what each begins or ends; setting one changes the board."""
    phases = phases_of(current_phases(session, benchmark.benchmark_id))
    found = ((words, getattr(phases, name)) for name, words in DATES.items())
    return [(words, moment.isoformat()) for words, moment in found if moment is not None]

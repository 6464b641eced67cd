"""What the page of a benchmark shows."""

from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions
from server.benchmarks.schemas import benchmark_view
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardQuery
from server.pages.explanations import EXPLAIN

Context = dict[str, Any]


def board_context(session: Session, benchmark: Benchmark, query: BoardQuery) -> Context:
    """A benchmark, the part of its board that is asked for, and how it is scored."""
    counts = count_submissions(session).get(benchmark.benchmark_id, NO_SUBMISSIONS)
    shown = benchmark_view(benchmark, counts)
    board = read_board(session, benchmark, query)
    return {
        "benchmark": shown.model_dump(mode="json"),
        "board": board.model_dump(mode="json"),
        "filters": query.model_dump(mode="json", exclude_defaults=True),
        "explanation": EXPLAIN[query.kind](benchmark),
    }

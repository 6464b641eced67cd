"""The division that a board begins with: divisions are numbered apart."""

from collections.abc import Callable

from finishline.rules.benchmarks.benchmark import Benchmark
from server.boards.ranked import RankedBoard
from server.boards.schemas import BoardQuery

BoardOf = Callable[[BoardQuery], RankedBoard]


def board_in_division(
    benchmark: Benchmark, query: BoardQuery, board_of: BoardOf
) -> tuple[BoardQuery, RankedBoard]:
    """The board that `board_of` a query is, and the query with its division.

    Where it names none, that is the first division with a training. Divisions of trainings are
    never ranked together; they say nothing of an inference.
    """
    if query.division is not None or query.kind != "train":
        return query, board_of(query)
    asked = [query.model_copy(update={"division": name}) for name in benchmark.divisions]
    for one in asked[:-1]:
        board = board_of(one)
        if board.rows:
            return one, board
    last = board_of(asked[-1])
    return (asked[-1], last) if last.rows else (asked[0], board_of(asked[0]))

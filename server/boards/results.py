"""The results of several boards together: of a round, an accelerator, a submitter."""

from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import board_versions, cached_for_board
from server.benchmarks.queries import round_of, rounds_of
from server.boards.ranked import PlacedRow, RankedBoard, ranked_board
from server.boards.schemas import BoardQuery

Result = dict[str, Any]
# Of each division of a board: nobody reads on, and a board may have 20,000 rows.
MOST_RESULTS = 1000
FIELDS = (
    *("submission_id", "submitter", "display_name", "model", "framework", "division", "system"),
    *("status", "rank", "evidence", "check", "trained_with"),
    *("tta_seconds", "measured_seconds", "submitted_on", "submitted_at"),
)


def board_results(session: Session, benchmarks: Iterable[Benchmark]) -> list[Result]:
    """The ranked trainings of these benchmarks, cached for each board version and never changed."""
    versions = board_versions(session)
    found: list[Result] = []
    for benchmark in benchmarks:
        name = benchmark.benchmark_id
        if name in versions:
            make = partial(_find, session, benchmark, versions[name])
            found += cached_for_board(session, name, "results", make, version=versions[name])
    return found


def _find(session: Session, benchmark: Benchmark, version: int) -> list[Result]:
    """Each result once: a measured one from the board of its hardware class."""
    found: list[Result] = []
    for division in benchmark.divisions:
        for name in rounds_of(benchmark):
            query = BoardQuery.model_validate({"division": division, "round": name})
            board = ranked_board(session, benchmark, query, version=version)
            found += _listed(session, benchmark, board, {None, board.hardware_class})
            for hardware_class in sorted(board.other_classes):
                query = query.model_copy(update={"hardware_class": hardware_class})
                other = ranked_board(session, benchmark, query, version=version)
                found += _listed(session, benchmark, other, {hardware_class})
    return found


def _listed(
    session: Session, benchmark: Benchmark, board: RankedBoard, classes: Container[str | None]
) -> Iterator[Result]:
    """The first listed rows of a board that were measured on one of these classes."""
    for placed in board.page(session, 0, min(MOST_RESULTS, board.order.listed)):
        if placed.row.standing.hardware_class in classes:
            yield _result(placed, benchmark)


def _result(placed: PlacedRow, benchmark: Benchmark) -> Result:
    figures = {name: placed.figure(name) for name in FIELDS}
    known = {
        "benchmark": benchmark.benchmark_id,
        "accelerator": placed.row.accelerator,
        "round": round_of(benchmark, figures["evidence"]),
    }
    return figures | known

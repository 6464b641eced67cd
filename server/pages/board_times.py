"""The unit that a board's times have on every page."""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import board_version, cached_for_board
from server.benchmarks.definitions import round_of
from server.boards.board import RankedBoard, ranked_board
from server.boards.query import BoardQuery
from web.formats import SECONDS, STOPWATCH, TimeFormat, time_format


def times_of_board(benchmark: Benchmark, board: RankedBoard) -> TimeFormat:
    """The unit that the definition names, else the one that fits the numbered rows."""
    rows = board.numbered or list(board.rows.values())
    return times_fitting(
        benchmark, (row.tta_seconds for row in rows), {row.evidence for row in rows}
    )


def times_fitting(
    benchmark: Benchmark, seconds: Iterable[float | None], evidence: Collection[str]
) -> TimeFormat:
    """The unit that the definition names, else the one that fits these times.

    Published DAWNBench times are whole seconds, so where nothing else is shown it is H:MM:SS.
    """
    is_archive = benchmark.clock.name == "dawnbench" and set(evidence) == {"published"}
    return time_format(seconds, benchmark.time_unit or (STOPWATCH if is_archive else None))


def times_of(
    session: Session,
    benchmarks: Mapping[str, Benchmark],
    benchmark_id: str,
    division: str | None,
    evidence: str,
) -> TimeFormat:
    """The same of the official board with such evidence, found once for each version of it.

    Seconds for a benchmark that this server no longer has.
    """
    benchmark = benchmarks.get(benchmark_id)
    if benchmark is None:
        return SECONDS
    version = board_version(session, benchmark_id)
    asked = {
        "division": division or benchmark.divisions[0],
        "round": round_of(benchmark, evidence),
    }

    def find() -> TimeFormat:
        query = BoardQuery.model_validate(asked)
        return times_of_board(benchmark, ranked_board(session, benchmark, query, version=version))

    name = f"times {asked['division']} {asked['round']}"
    return cached_for_board(session, benchmark_id, name, find, version=version)

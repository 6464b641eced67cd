"""A round as a matrix: its systems by its benchmarks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.benchmarks.accelerators import Accelerator
from finishline.rules.ranking import ranked_seconds
from web.formats import number
from web.names import byline

View = Mapping[str, Any]
Shown = Literal["minutes", "per-accelerator", "speed-up"]
_FEWEST_MINUTES = 0.1  # Below this, two decimals of a minute say too little.
SHOWN: dict[Shown, str] = {
    "minutes": "Minutes",
    "per-accelerator": "Accelerator-minutes",
    "speed-up": "Speed-up over the slowest",
}


@dataclass(frozen=True)
class Cell:
    """A result: its figure, the submission, and whether it is the fastest of its benchmark."""

    text: str
    result: View
    is_fastest: bool


@dataclass(frozen=True)
class SystemRow:
    """A system with a result, or None, for each benchmark of its round."""

    first: View
    accelerator: Accelerator
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Matrix:
    """The benchmarks that have a result, and the systems, those with the most results first."""

    benchmarks: tuple[View, ...]
    systems: tuple[SystemRow, ...]


def round_matrix(benchmarks: Sequence[View], results: Sequence[View], shown: Shown) -> Matrix:
    """The results of one division; of several of a system on a benchmark the fastest."""
    timed = [result for result in results if ranked_seconds(result)]
    systems: defaultdict[tuple[str, str, str], dict[str, View]] = defaultdict(dict)
    for result in sorted(timed, key=_seconds):
        name = byline(result), result["system"]["name"], result["accelerator"].words
        systems[name].setdefault(result["benchmark"], result)
    present = tuple(b for b in benchmarks if any(b["id"] in cells for cells in systems.values()))
    times = {b["id"]: [_seconds(r) for r in timed if r["benchmark"] == b["id"]] for b in present}
    rows = [_row(cells, present, times, shown) for cells in systems.values()]
    order = sorted(rows, key=lambda row: -sum(cell is not None for cell in row.cells))
    return Matrix(present, tuple(order))


def _row(
    cells: Mapping[str, View],
    benchmarks: Sequence[View],
    times: Mapping[str, Sequence[float]],
    shown: Shown,
) -> SystemRow:
    first = next(iter(cells.values()))
    found = (cells.get(benchmark["id"]) for benchmark in benchmarks)
    return SystemRow(
        first,
        first["accelerator"],
        tuple(
            None
            if result is None
            else Cell(_figure(result, times, shown), result, _is_fastest(result, times))
            for result in found
        ),
    )


def _figure(result: View, times: Mapping[str, Sequence[float]], shown: Shown) -> str:
    seconds, count = _seconds(result), result["accelerator"].count
    if shown == "speed-up":
        return f"{number(max(times[result['benchmark']]) / seconds, 3)}×"
    if shown == "per-accelerator":
        return f"{seconds * count / 60:,.1f}" if count else "–"
    minutes = seconds / 60
    return f"{minutes:,.2f}" if minutes >= _FEWEST_MINUTES else f"{number(seconds, 3)} s"


def _is_fastest(result: View, times: Mapping[str, Sequence[float]]) -> bool:
    return _seconds(result) == min(times[result["benchmark"]])


def _seconds(result: View) -> float:
    return ranked_seconds(result) or 0.0

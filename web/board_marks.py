"""Marks in rows: figures on one scale, and a row among its neighbours."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.formats import GAP, TimeFormat, energy, milliseconds, number, round_step, small_money

Entry = Mapping[str, Any]
# A metric other than time: the field of its figure, and how a figure is written.
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "cost": ("cost_usd", small_money),
    "energy": ("energy_joules", energy),
    "latency": ("latency_ms", milliseconds),
    "inference_cost": ("cost_usd_per_10000", small_money),
}
MOST_TICKS = 5
EDGE_PERCENT = 3.0


@dataclass(frozen=True)
class Mark:
    """A figure of a row and its interval in percent of the plot's width, and how far from #1."""

    at: float
    low: float
    width: float
    gap: str


@dataclass(frozen=True)
class Plot:
    """The figures of a board's rows on one scale, with the place of #1's.

    It is logarithmic but for qualities.
    """

    ticks: Sequence[tuple[float, str]]
    first: float
    marks: Mapping[str, Mark]

    @property
    def has_intervals(self) -> bool:
        """Whether some figure has an interval."""
        return any(mark.width for mark in self.marks.values())


def board_plot(
    entries: Sequence[Entry], metric: str, time: TimeFormat, first: Entry | None
) -> Plot | None:
    """The marks of measured and numbered rows by submission. None for fewer than two.

    The first row of the board may stand on another page.
    """
    shown = [e for e in entries if e["section"] in ("ranked", "elsewhere")]
    rows = {e["submission_id"]: found for e in shown if (found := _figures(e, metric, time))}
    best = _figures(first, metric, time) if first else None
    if best is None or len(rows) < 2:
        return None
    known = [value for row in (*rows.values(), best) for value in row]
    least, most = min(known), max(known)
    place = math.log if metric != "quality" else float
    span = place(most) - place(least) or 1.0

    def at(value: float) -> float:
        rest = 100 - 2 * EDGE_PERCENT
        return round(EDGE_PERCENT + rest * (place(value) - place(least)) / span, 1)

    scale = time.scale if metric == "tta" else 1.0
    round_figures = _even_figures if metric == "quality" else _round_figures
    ticks = [value * scale for value in round_figures(least / scale, most / scale)]
    return Plot(
        ticks=[(at(tick), _tick(tick, metric, time, is_first=tick == ticks[0])) for tick in ticks],
        first=at(best[0]),
        marks={
            name: Mark(
                at(value), at(low), round(at(high) - at(low), 1), gap_words(value, best[0], metric)
            )
            for name, (value, low, high) in rows.items()
        },
    )


def _figures(entry: Entry, metric: str, time: TimeFormat) -> tuple[float, float, float] | None:
    """The figure that ranks a row and the ends of its interval, which may have no width."""
    if metric in FIGURES:
        value = entry[FIGURES[metric][0]]
        return (value, value, value) if value else None
    value, (low, high) = time.figure(entry), time.ends(entry)
    if value is None or (metric == "tta" and value <= 0):
        return None
    return value, value if low is None else low, value if high is None else high


def _tick(value: float, metric: str, time: TimeFormat, *, is_first: bool) -> str:
    """A figure of the scale. Of times the first alone has the unit."""
    if metric in FIGURES:
        return FIGURES[metric][1](value)
    if metric == "quality":
        return time.shown(value)
    return number(value / time.scale, 3) + (f"{GAP}{time.unit}" if is_first else "")


def _round_figures(least: float, most: float) -> list[float]:
    """Round figures of a range: some of each decade, else at equal steps."""
    decades = range(math.floor(math.log10(least)), math.floor(math.log10(most)) + 1)
    found = [f * 10.0**d for d in decades for f in (1, 2, 5) if least <= f * 10.0**d <= most]
    if len(found) > MOST_TICKS:
        found = [10.0**d for d in decades if least <= 10.0**d <= most]
        return found[:: -(-len(found) // MOST_TICKS)]
    if len(found) > 2 or least == most:
        return found
    return _even_figures(least, most)


def _even_figures(least: float, most: float) -> list[float]:
    """Round figures at equal steps."""
    step = round_step((most - least) / (MOST_TICKS - 1)) if most > least else 1.0
    return [n * step for n in range(math.ceil(least / step), math.floor(most / step) + 1)]


def gap_words(value: float, best: float, metric: str) -> str:
    """How far a figure is from that of #1: "+15 %", "36 ×" from ten times on, or "-0.8"."""
    if metric == "quality":
        return f"{value - best:+.2g}".replace("-", "\u2212")
    ratio = value / best
    if ratio >= 10:
        return f"{number(ratio, 2)}{GAP}×"
    return f"{round(100 * (ratio - 1)):+d}{GAP}%".replace("-", "\u2212")


def whiskers(places: Sequence[Entry]) -> list[Entry]:
    """The neighbours of a submission on one scale, in the order of the board.

    The `figure` of each and the ends of its interval, where they are known, become percent in `at`.
    """
    names = ("figure", "low", "high")
    timed = [place for place in places if place["figure"] is not None]
    ends = [place[name] for place in timed for name in names if place[name] is not None]
    if not ends:
        return []
    low, high = min(ends), max(ends)
    span = (high - low) or high or 1.0
    low, span = low - 0.04 * span, 1.08 * span

    def at(value: float | None) -> float | None:
        return None if value is None else 100 * (value - low) / span

    return [{**place, "at": {name: at(place[name]) for name in names}} for place in timed]

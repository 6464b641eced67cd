"""Marks in tables: figures on one scale, a row among its neighbours, and small lines."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.text import count_text, significant
from finishline.rules.verification.utilisation import TOLERANCE
from web.formats import (
    DASH,
    GAP,
    SECONDS,
    TimeFormat,
    day,
    energy,
    milliseconds,
    moment,
    number,
    percent,
    quality,
    round_step,
    small_money,
)

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
    """The figures of a board's rows on a scale, with the place of #1's. It is log for times."""

    ticks: Sequence[tuple[float, str]]
    first: float
    marks: Mapping[str, Mark]


def board_plot(
    entries: Sequence[Entry], metric: str, time: TimeFormat, first: Entry | None
) -> Plot | None:
    """The marks of measured rows other than the `first`. None for fewer than two rows."""
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
        return quality(value, time.quality_unit)
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
    """How far a figure is from that of #1: "+15 %", from ten times on "36 ×", or "-0.8"."""
    if metric == "quality":
        return f"{value - best:+.2g}".replace("-", "\u2212")
    ratio = value / best
    if not 0.1 < ratio < 10:
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


WIDTH, HEIGHT, PAD = 120.0, 36.0, 3.0
HOLD = 1.06  # The last record holds: its line goes on so much further than the last date.
LEAST_SPAN = 2 * TOLERANCE  # Of the baseline to either side: noise does not fill the picture.


@dataclass(frozen=True)
class Sparkline:
    """A path within WIDTH x HEIGHT, the point it ends in, and its description in words.

    `band` has the heights of the upper limit, the middle and the lower limit of what is allowed.
    """

    path: str
    end: tuple[float, float]
    words: str
    band: tuple[float, float, float] | None = None


def _sparkline(
    points: Sequence[tuple[float, float]],
    words: str,
    *,
    ends: tuple[float, float],
    band: tuple[float, float, float] | None = None,
    is_step: bool = False,
) -> Sparkline:
    """The line through the points. `ends` are the figures at the bottom and at the top."""
    first, width = points[0][0], points[-1][0] - points[0][0] or 1.0
    low, high = ends

    def height(value: float) -> float:
        return round(PAD + (HEIGHT - 2 * PAD) * (high - value) / (high - low or 1.0), 1)

    places = [
        (round(PAD + (WIDTH - 2 * PAD) * (x - first) / width, 1), height(y)) for x, y in points
    ]
    path = f"M{places[0][0]:g} {places[0][1]:g}"
    path += "".join(f"H{x:g}V{y:g}" if is_step else f"L{x:g} {y:g}" for x, y in places[1:])
    heights = None if band is None else (height(band[0]), height(band[1]), height(band[2]))
    return Sparkline(path, places[-1], words, heights)


def record_line(records: Sequence[Entry], time: TimeFormat = SECONDS) -> Sparkline | None:
    """The records of a division, times on a log scale. None if all of them are of one day."""
    if len({day(record["date"]) for record in records}) < 2:
        return None
    days = [moment(record["date"]).timestamp() for record in records]
    # An archive may have any time, and the page this is on is everybody's.
    if time.quality_unit is None:
        levels = [math.log(max(record["tta_seconds"], SHORTEST_SECONDS)) for record in records]
    else:
        levels = [time.figure(record) or 0.0 for record in records]
    first, last = records[0], records[-1]
    words = (
        f"{count_text(len(records), 'record')}, "
        f"from {time.ranked(first)} on {day(first['date'])} "
        f"{'to' if time.quality_unit else 'down to'} {time.ranked(last)} on {day(last['date'])}"
    )
    held = (days[0] + HOLD * (days[-1] - days[0]), levels[-1])
    points = [*zip(days, levels, strict=True), held]
    return _sparkline(points, words, ends=(min(levels), max(levels)), is_step=True)


def canary_line(probes: Sequence[Entry]) -> Sparkline | None:
    """The latest configuration's readings with their limits. `probes` has the newest first."""
    told = [p for p in probes if p["gflops"] is not None and p["moment"] != "roof"]
    if not told:
        return None
    readings = [p for p in told if p["configuration"] == told[0]["configuration"]][::-1]
    values = [probe["gflops"] for probe in readings]
    baseline = readings[-1]["baseline_gflops"]
    centre = baseline or (min(values) + max(values)) / 2 or 1.0
    span = max(LEAST_SPAN * centre, *(1.1 * abs(value - centre) for value in values))
    band = (baseline * (1 + TOLERANCE), baseline, baseline * (1 - TOLERANCE)) if baseline else None
    points = [*enumerate(values)] if len(values) > 1 else [(0, values[0]), (1, values[0])]
    ends = (centre - span, centre + span)
    return _sparkline(points, _readings_words(readings, baseline), ends=ends, band=band)


def _readings_words(readings: Sequence[Entry], baseline: float | None) -> str:
    since = f"{count_text(len(readings), 'reading')} since {day(readings[0]['measured_at'])}"
    latest = f"the latest {speed_text(readings[-1]['gflops'])}"
    if baseline is None:
        return f"{since}, {latest}, without a baseline yet."
    ratios = [probe["ratio"] for probe in readings if probe["ratio"] is not None]
    furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return (
        f"{since}, {latest}: {off_text(readings[-1]['ratio'])} (baseline "
        f"{speed_text(baseline)}). Furthest off {off_text(furthest)}."
    )


def speed_text(gflops: float | None) -> str:
    """The speed of arithmetic: GFLOP/s, from a thousand on TFLOP/s, four digits."""
    if gflops is None:
        return DASH
    unit, value = ("TFLOP/s", gflops / 1_000) if gflops >= 1_000 else ("GFLOP/s", gflops)
    return f"{significant(value, 4)}{GAP}{unit}"


def off_text(ratio: float | None) -> str:
    """Deviation of a reading from its baseline: "0.4 % below"."""
    if ratio is None:
        return "no baseline yet"
    off = 100 * (ratio - 1)
    if abs(off) < 0.05:
        return "at its baseline"
    return f"{percent(abs(off))} {'above' if off > 0 else 'below'}"

"""Small lines in tables: the records of a board, and the speed check of a worker."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.text import count_text, significant
from finishline.rules.verification.utilisation import TOLERANCE
from web.formats import DASH, GAP, SECONDS, TimeFormat, day, moment, percent

View = Mapping[str, Any]
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


def record_line(records: Sequence[View], time: TimeFormat = SECONDS) -> Sparkline | None:
    """The records of a division from first to last, times on a logarithmic scale.

    None where there is no history: fewer than two, or all of one day, as of an imported round.
    """
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


def canary_line(probes: Sequence[View]) -> Sparkline | None:
    """The latest configuration's readings (`probes` has the newest first), with their limits.

    There is no band before there is a baseline. None without a reading.
    """
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


def _readings_words(readings: Sequence[View], baseline: float | None) -> str:
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

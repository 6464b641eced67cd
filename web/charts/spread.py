"""How much the runs of submissions vary: each run as a dot, with the middle half and the median."""

import statistics
from collections.abc import Sequence
from itertools import chain
from typing import Any

from web.charts import parts as draw
from web.charts.parts import Chart, View
from web.formats import TimeFormat

FEWEST_FOR_QUARTILES = 4
FEWEST_POINTS = 2
ONE_RUN = "A chart needs two runs that reached the target."
NOTHING = "No ranked submission here has a run that reached the target."
FIGURES = ("Runs", "Reached", "Fastest", "First quartile", "Median", "Third quartile", "Slowest")


def quartiles(seconds: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile, interpolated. Empty below four runs."""
    if len(seconds) < FEWEST_FOR_QUARTILES:
        return []
    return statistics.quantiles(seconds, n=4, method="inclusive")


def distribution_chart(view: View) -> Chart:
    """A row for each submission, a dot for each run, and from four runs up a bar and the median."""
    sets, time = view["sets"], view["time"]
    rows = draw.entry_table(
        (draw.entry_row(one["entry"], *_cells(one, time)) for one in sets), figures=FIGURES
    )
    shown = [(one, seconds) for one in sets if (seconds := _seconds(one))]
    known = [second for _, seconds in shown for second in seconds]
    if len(known) < FEWEST_POINTS:
        return draw.empty(ONE_RUN if known else NOTHING, rows)
    boxes = [(row, box) for row, (_, seconds) in enumerate(shown) if (box := quartiles(seconds))]
    ends = ((box[0] / time.scale, box[2] / time.scale, None) for _, box in boxes)
    heights = chain.from_iterable((row, row, None) for row, _ in boxes)
    bars = draw.line(
        "middle half of the runs", chain.from_iterable(ends), heights, 7, width=16, opacity=0.3
    )
    middles = [box[1] / time.scale for _, box in boxes]
    median: dict[str, Any] = {"symbol": "line-ns-open", "size": 20, "edge": 3, "hoverinfo": "skip"}
    medians = draw.dots("median", middles, (row for row, _ in boxes), 7, **median)
    entries = [one["entry"] for one, _ in shown]
    names = list(draw.names_of(entries, lambda text: draw.label(text, lines=2)).values())
    return draw.chart(
        [*([bars, medians] if boxes else []), *_dots([one for one, _ in shown], time)],
        rows,
        xaxis=draw.time_axis(time, "Time of a run", known),
        yaxis=draw.named_axis(names, is_from_top=True),
        height=150 + 40 * len(shown),
    )


def _cells(one: View, time: TimeFormat) -> tuple[str, ...]:
    seconds = _seconds(one)
    counts = (str(len(one["runs"])), str(len(seconds)))
    figures: list[float | None] = [*quartiles(seconds)]
    if not figures:
        figures = [None, statistics.median(seconds) if seconds else None, None]
    return (*counts, *map(time, (min(seconds, default=None), *figures, max(seconds, default=None))))


def _seconds(one: View) -> list[float]:
    return [run["seconds"] for run in one["runs"] if run["seconds"] is not None]


def _dots(sets: Sequence[View], time: TimeFormat) -> list[draw.Trace]:
    """A dot for each run, by the evidence of its submission, a little above or below each other."""
    placed = [
        (seconds, row + (order % 5 - 2) * 0.07, one["entry"])
        for row, one in enumerate(sets)
        for order, seconds in enumerate(_seconds(one))
    ]
    groups = {
        status: [each for each in placed if draw.evidence_group(each[2]) == status]
        for status in draw.SYMBOLS
    }
    return [
        draw.dots(
            f"run, {status}",
            [seconds / time.scale for seconds, _, _ in group],
            [height for _, height, _ in group],
            f"status-{status}",
            symbol=draw.SYMBOLS[status],
            size=7,
            edge=1.5,
            text=[draw.told(entry, time(seconds)) for seconds, _, entry in group],
            customdata=[draw.address_of(entry) for _, _, entry in group],
        )
        for status, group in groups.items()
        if group
    ]

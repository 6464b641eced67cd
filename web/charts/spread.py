"""Charts of how much runs vary: each as a dot, and the share that has reached the target."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from web.charts.parts import (
    SYMBOLS,
    Chart,
    Trace,
    View,
    address_of,
    axis,
    chart,
    dots,
    empty,
    entry_row,
    entry_table,
    evidence_group,
    label,
    line,
    names_of,
    rows_axis,
    series_marks,
    time_axis,
    told,
)
from web.formats import DASH, SECONDS, TimeFormat

FEWEST_FOR_A_BOX = 4
HALF_HEIGHT = 0.28
FEWEST_POINTS = 2
ONE_RUN = "A chart needs two runs that reached the target."
NOTHING = "No ranked submission here has a run that reached the target."


@dataclass(frozen=True)
class Box:
    """The quartiles of a set of runs in seconds."""

    lower: float
    median: float
    upper: float


def box_of(seconds: Sequence[float]) -> Box | None:
    """First quartile, median and third quartile, interpolated between runs. None below four."""
    if len(seconds) < FEWEST_FOR_A_BOX:
        return None
    return Box(*statistics.quantiles(seconds, n=4, method="inclusive"))


def distribution_chart(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Chart:
    """A row for each submission with a dot for each run, and a box from four runs up.

    A set has its board "entry" and its "runs", each with "seconds", None if it did not get there.
    The box goes from the first to the third quartile with a line at the median. It is drawn as a
    polygon: the smallest bundle of Plotly has no boxes.
    """
    figures = ("Runs", "Reached", "Fastest", "First quartile", "Median", "Third quartile")
    rows = entry_table(
        (entry_row(one["entry"], *_cells(one, time)) for one in sets),
        figures=(*figures, "Slowest"),
    )
    shown = [one for one in sets if _seconds(one)]
    known = [seconds for one in shown for seconds in _seconds(one)]
    if len(known) < FEWEST_POINTS:
        return empty(ONE_RUN if known else NOTHING, rows)
    boxes = [(row, box) for row, one in enumerate(shown) if (box := box_of(_seconds(one)))]
    return chart(
        [*_boxes(boxes, time.scale), *_dots(shown, time)],
        rows,
        xaxis=time_axis(time, "Time of a run", known),
        yaxis=rows_axis([one["entry"] for one in shown]),
        height=150 + 40 * len(shown),
    )


def _cells(one: View, time: TimeFormat) -> tuple[str, ...]:
    seconds = _seconds(one)
    counts = (str(len(one["runs"])), str(len(seconds)))
    if not seconds:
        return (*counts, *(DASH for _ in range(5)))
    box, middle = box_of(seconds), statistics.median(seconds)
    lower, upper = (box.lower, box.upper) if box else (None, None)
    figures = (min(seconds), lower, middle, upper, max(seconds))
    return (*counts, *(time(figure) for figure in figures))


def _seconds(one: View) -> list[float]:
    return [run["seconds"] for run in one["runs"] if run["seconds"] is not None]


def _boxes(boxes: Sequence[tuple[int, Box]], scale: float) -> list[Trace]:
    if not boxes:
        return []
    xs: list[float | None] = []
    ys: list[float | None] = []
    middles: list[float | None] = []
    ends: list[float | None] = []
    for row, box in boxes:
        low, middle, high = (at / scale for at in (box.lower, box.median, box.upper))
        top, bottom = row - HALF_HEIGHT, row + HALF_HEIGHT
        xs += [low, high, high, low, low, None]
        ys += [top, top, bottom, bottom, top, None]
        middles += [middle, middle, None]
        ends += [top, bottom, None]
    box_look: dict[str, Any] = {"width": 1, "fill": "toself", "meta": {"series": 7}}
    return [
        line("middle half of the runs", xs, ys, "box", **box_look),
        line("median", middles, ends, 7, width=3),
    ]


def _dots(sets: Sequence[View], time: TimeFormat) -> list[Trace]:
    """A dot for each run, by the evidence of its submission.

    Runs stand a little above and below each other, so that equal ones are told apart.
    """
    placed = [
        (run, row + (order % 5 - 2) * 0.07, one["entry"])
        for row, one in enumerate(sets)
        for order, run in enumerate(one["runs"])
        if run["seconds"] is not None
    ]
    groups = {
        status: [each for each in placed if evidence_group(each[2]) == status] for status in SYMBOLS
    }
    return [
        dots(
            f"run, {status}",
            [run["seconds"] / time.scale for run, _, _ in group],
            [height for _, height, _ in group],
            f"status-{status}",
            symbol=SYMBOLS[status],
            size=7,
            edge=1.5,
            text=[
                told(entry, f"{time(run['seconds'])}, {label(run['file'])}")
                for run, _, entry in group
            ],
            customdata=[address_of(entry) for _, _, entry in group],
        )
        for status, group in groups.items()
        if group
    ]


NO_RUNS = "No ranked submission here lists its runs."
SHARES = (0.25, 0.5, 0.75, 1.0)


def reached_by(runs: Sequence[View]) -> list[tuple[float, float]]:
    """Seconds and the share of all runs that had reached the target by then, step by step.

    A run that never got there counts among all, so its curve ends below 1. Every run was watched
    to its end, so this is the Kaplan-Meier estimate, turned round, with no run lost from sight.
    """
    if not runs:
        return []
    times = sorted(run["seconds"] for run in runs if run["seconds"] is not None)
    steps, count = [(0.0, 0.0)], 0
    for seconds, equal in groupby(times):
        count += len(list(equal))
        steps.append((seconds, count / len(runs)))
    return steps


def survival_chart(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Chart:
    """A step for each run, submission by submission. All are drawn on to the slowest run of all.

    A set has its board "entry" and its "runs", each with "seconds", None if it did not get there.
    The table has the times by which a quarter, half, three quarters and all had got there.
    """
    rows = entry_table(
        (
            entry_row(
                one["entry"],
                str(len(one["runs"])),
                str(len(_seconds(one))),
                *(time(_by(one["runs"], share)) for share in SHARES),
            )
            for one in sets
        ),
        figures=("Runs", "Reached", "25 % by", "50 % by", "75 % by", "all by"),
    )
    shown = [one for one in sets if one["runs"]]
    known = [seconds for one in shown for seconds in _seconds(one)]
    if len(known) < FEWEST_POINTS:
        return empty(ONE_RUN if shown else NO_RUNS, rows)
    end, names = 1.05 * max(known), names_of([one["entry"] for one in shown])
    return chart(
        (
            _steps(one, order, names[one["entry"]["submission_id"]], time.scale, end)
            for order, one in enumerate(shown)
        ),
        rows,
        xaxis=axis(f"Time on the clock ({time.word})", rangemode="tozero"),
        yaxis=axis(
            "Share of runs at the target", range=[-0.02, 1.04], tickformat=".0%", dtick=0.25
        ),
        height=400,
    )


def _by(runs: Sequence[View], share: float) -> float | None:
    return next((s for s, reached in reached_by(runs) if reached >= share), None)


def _steps(one: View, order: int, name: str, scale: float, end: float) -> Trace:
    steps = reached_by(one["runs"])
    steps.append((end, steps[-1][1]))
    marks = series_marks(order)
    return dots(
        name,
        [seconds / scale for seconds, _ in steps],
        [share for _, share in steps],
        order,
        symbol=marks["symbol"],
        size=[0, *(7 for _ in steps[2:]), 0],
        edge=1.5,
        mode="lines+markers",
        hover="%{y:.0%} by %{x:.4~g}",
        line={"shape": "hv", "dash": marks["dash"]},
    )

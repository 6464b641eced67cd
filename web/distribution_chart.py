"""Figures of how much runs vary: each as a dot, and the share that has reached the target."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from web.board_chart import rows_axis
from web.chart_parts import (
    SYMBOLS,
    Figure,
    Table,
    axis,
    columns,
    empty_figure,
    evidence_group,
    label,
    layout,
    names_of,
    plain,
    series_marks,
    submission_row,
    time_axis,
)
from web.formats import DASH, SECONDS, TimeFormat
from web.names import byline, entry_title, hardware

FEWEST_FOR_A_BOX = 4
HALF_HEIGHT = 0.28
FEWEST_POINTS = 2
ONE_RUN = "A chart needs two runs that reached the target."
NOTHING = "No ranked submission here has a run that reached the target."

View = Mapping[str, Any]


@dataclass(frozen=True)
class Box:
    """The quartiles of a set of runs in seconds."""

    lower: float
    median: float
    upper: float


def box_of(seconds: Sequence[float]) -> Box | None:
    """First quartile, median and third quartile, interpolated between runs; None below four."""
    if len(seconds) < FEWEST_FOR_A_BOX:
        return None
    return Box(*statistics.quantiles(seconds, n=4, method="inclusive"))


def distribution_figure(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Figure:
    """A row for each submission with a dot for each run, and a sandbox from four runs up.

    A set has its board "entry" and its "runs", each with "seconds", None if it did not get there.
    The sandbox goes from the first to the third quartile with a line at the median. It is drawn as
    a polygon: the smallest bundle of Plotly has no sandboxes.
    """
    shown = [one for one in sets if _seconds(one)]
    if not shown:
        return empty_figure(NOTHING)
    known = [seconds for one in shown for seconds in _seconds(one)]
    if len(known) < FEWEST_POINTS:
        return empty_figure(ONE_RUN)
    scale = time.scale
    boxes = [(row, box) for row, one in enumerate(shown) if (box := box_of(_seconds(one)))]
    traces = [*([_boxes(boxes, scale), _medians(boxes, scale)] if boxes else [])]
    traces += [_dots(status, group, time) for status, group in _by_status(shown)]
    return {
        "data": traces,
        "layout": layout(
            xaxis=time_axis(time, "Time of a run", known),
            yaxis=rows_axis([one["entry"] for one in shown]),
            height=150 + 40 * len(shown),
        ),
    }


def distribution_table(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Table:
    """Runs, quartiles and ends of each submission."""
    titles = ("Runs", "Reached", "Fastest", "First quartile", "Median", "Third quartile", "Slowest")
    return Table(
        columns("Entry", "Submitter", "Hardware", figures=titles),
        tuple(submission_row(one["entry"], *_cells(one, time)) for one in sets),
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


def _boxes(boxes: Sequence[tuple[int, Box]], scale: float) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row, box in boxes:
        low, high = box.lower / scale, box.upper / scale
        xs += [low, high, high, low, low, None]
        ys += [row - HALF_HEIGHT] * 2 + [row + HALF_HEIGHT] * 2 + [row - HALF_HEIGHT, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "middle half of the runs",
        "x": xs,
        "y": ys,
        "fill": "toself",
        "line": {"width": 1},
        "hoverinfo": "skip",
        "meta": {"paint": "box", "series": 7},
    }


def _medians(boxes: Sequence[tuple[int, Box]], scale: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "median",
        "x": [x for _, box in boxes for x in (box.median / scale, box.median / scale, None)],
        "y": [y for row, _ in boxes for y in (row - HALF_HEIGHT, row + HALF_HEIGHT, None)],
        "line": {"width": 3},
        "hoverinfo": "skip",
        "meta": {"paint": "series", "series": 7},
    }


def _by_status(sets: Sequence[View]) -> list[tuple[str, list[tuple[int, View]]]]:
    placed = list(enumerate(sets))
    groups = [(s, [p for p in placed if evidence_group(p[1]["entry"]) == s]) for s in SYMBOLS]
    return [(status, group) for status, group in groups if group]


def _dots(status: str, placed: Sequence[tuple[int, View]], time: TimeFormat) -> dict[str, Any]:
    dots = [
        (run["seconds"], row + _beside(order), one["entry"], run)
        for row, one in placed
        for order, run in enumerate(one["runs"])
        if run["seconds"] is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"run, {status}",
        "x": [seconds / time.scale for seconds, _, _, _ in dots],
        "y": [place for _, place, _, _ in dots],
        "text": [_text(entry, run, time) for _, _, entry, run in dots],
        "customdata": [f"/submissions/{entry['submission_id']}" for _, _, entry, _ in dots],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"symbol": SYMBOLS[status], "size": 7, "line": {"width": 1.5}},
        "meta": {"paint": f"status-{status}"},
    }


def _beside(order: int) -> float:
    """Distance of a run from the middle of its row, so that equal runs are told apart."""
    return (order % 5 - 2) * 0.07


def _text(entry: View, run: View, time: TimeFormat) -> str:
    lines = (
        plain(entry_title(entry), longest=60),
        f"{label(byline(entry))}, {label(hardware(entry))}",
        f"{time(run['seconds'])}, {label(run['file'])}",
    )
    return "<br>".join(lines)


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


def survival_figure(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Figure:
    """A step for each run, submission by submission; all are drawn on to the slowest run of all.

    A set has its board "entry" and its "runs", each with "seconds", None if it did not get there.
    """
    shown = [one for one in sets if one["runs"]]
    if not shown:
        return empty_figure(NO_RUNS)
    known = [run["seconds"] for one in shown for run in one["runs"] if run["seconds"] is not None]
    if len(known) < FEWEST_POINTS:
        return empty_figure(ONE_RUN)
    unit, scale = time.word, time.scale
    end = max(known, default=0.0) * 1.05
    names = names_of([one["entry"] for one in shown])
    return {
        "data": [
            _steps(one, order, names[one["entry"]["submission_id"]], scale, end)
            for order, one in enumerate(shown)
        ],
        "layout": layout(
            xaxis=axis(f"Time on the clock ({unit})", rangemode="tozero"),
            yaxis=axis(
                "Share of runs at the target", range=[-0.02, 1.04], tickformat=".0%", dtick=0.25
            ),
            height=400,
        ),
    }


def survival_table(sets: Sequence[View], *, time: TimeFormat = SECONDS) -> Table:
    """Times by which a quarter, half, three quarters and all of the runs had got there."""
    titles = ("Runs", "Reached", "25 % by", "50 % by", "75 % by", "all by")
    return Table(
        columns("Entry", "Submitter", "Hardware", figures=titles),
        tuple(
            submission_row(
                one["entry"],
                str(len(one["runs"])),
                str(sum(run["seconds"] is not None for run in one["runs"])),
                *(time(_by(one["runs"], share)) for share in SHARES),
            )
            for one in sets
        ),
    )


def _by(runs: Sequence[View], share: float) -> float | None:
    return next((s for s, reached in reached_by(runs) if reached >= share), None)


def _steps(one: View, order: int, name: str, scale: float, end: float) -> dict[str, Any]:
    steps = reached_by(one["runs"])
    steps.append((end, steps[-1][1]))
    marks = series_marks(order)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [seconds / scale for seconds, _ in steps],
        "y": [share for _, share in steps],
        "line": {"shape": "hv", "width": 2, "dash": marks["dash"]},
        "marker": {
            "symbol": marks["symbol"],
            "size": [0, *(7 for _ in steps[2:]), 0],
            "line": {"width": 1.5},
        },
        "hovertemplate": "%{y:.0%} by %{x:.4~g}",
        "meta": {"paint": "series", "series": order},
    }

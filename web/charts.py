"""Results in, Plotly figures out: plain dicts, ready to be sent as JSON.

A figure with several views (the same runs over seconds and over epochs) names them in
`layout.meta.views`; a trace that belongs to one of them names it in `meta.view`.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from web.board_chart import pareto_figure, pareto_table
from web.chart_parts import Curves, Figure, Table, band_traces, label, number_of
from web.curves_chart import MOST_EVALUATIONS, convergence_curves_figure, convergence_curves_table
from web.distribution_chart import (
    distribution_figure,
    distribution_table,
    survival_figure,
    survival_table,
)
from web.formats import SECONDS, TimeFormat
from web.records_chart import records_figure, records_table
from web.replay_chart import ghost_traces
from web.scaling_chart import scaling_figure, scaling_table

__all__ = ["curves_figure", "pareto_figure"]

View = Mapping[str, Any]


def curves_figure(
    runs: Sequence[View],
    target: View,
    control_points: Sequence[View] = (),
    ghosts: Sequence[View] = (),
    *,
    time: TimeFormat = SECONDS,
) -> Figure:
    """Quality of each run of a submission over seconds, and over epochs with the band.

    A run has its "file" and its "curve". Ghosts stand beside them over seconds.
    """
    curves = [run["curve"] for run in runs]
    drawn = Curves(curves, time)
    traces = [trace for ghost in ghosts for trace in ghost_traces(ghost)[:1]]
    for trace in traces:
        trace["x"] = [at / drawn.time.scale for at in trace["x"]]
    for order, run in enumerate(runs):
        look = {"name": label(run["file"]), "line": {"width": 2}, "marker": {"size": 5}}
        meta = {"paint": "series", "series": order, "run": order}
        traces += drawn.traces(run["curve"], look, most=MOST_EVALUATIONS, **meta)
    longest: Sequence[View] = max(curves, key=len, default=[])
    places = [_place(point["index"], longest if drawn.by_epoch else []) for point in control_points]
    bands = band_traces(control_points, places, view=drawn.progress)
    return drawn.figure([*bands, *traces], target)


def _place(index: int, curve: Sequence[View]) -> float:
    """The epoch of the evaluation of that index (from 1), continued evenly past the end."""
    if not curve:
        return index
    known = [number_of(point, place) for place, point in enumerate(curve, start=1)]
    last, end = known[-1], float(curve[-1]["epoch"])
    if index > last:
        return end + (index - last) * end / last
    at = bisect_left(known, index)
    here = float(curve[at]["epoch"])
    if known[at] == index or at == 0:
        return here
    before = float(curve[at - 1]["epoch"])
    return before + (here - before) * (index - known[at - 1]) / (known[at] - known[at - 1])


Need = Literal["board", "records", "runs", "curves"]


@dataclass(frozen=True)
class BoardChart:
    """One chart of a board, with a `label` for lists of them.

    `selected` is how many submissions it shows unless some are named.
    """

    name: str
    label: str
    title: str
    about: str
    needs: Need
    figure: Callable[[View], Figure]
    table: Callable[[View], Table]
    selected: int = 0


def _lower_quality(view: View) -> bool:
    return bool(view["target"]["direction"] == "lower")


CHARTS = (
    BoardChart(
        "pareto",
        "Trade-offs",
        "Time against cost, energy, quality or latency",
        "On the line, no entry is better in both",
        "board",
        lambda v: pareto_figure(
            v["board"], v["against"], lower_quality=_lower_quality(v), time=v["time"]
        ),
        lambda v: pareto_table(
            v["board"], v["against"], lower_quality=_lower_quality(v), time=v["time"]
        ),
    ),
    BoardChart(
        "records",
        "Records",
        "Record history",
        "The record of each board over time. Small marks had a lower time and took no record",
        "records",
        lambda v: records_figure(v["divisions"], v["note"], time=v["time"]),
        lambda v: records_table(v["divisions"], time=v["time"]),
    ),
    BoardChart(
        "curves",
        "Convergence",
        "Convergence",
        "Quality of every run against time and epochs, with the target and the reference",
        "curves",
        lambda v: convergence_curves_figure(v["sets"], v["target"], v["reference"], time=v["time"]),
        lambda v: convergence_curves_table(v["sets"], v["target"], time=v["time"]),
        selected=3,
    ),
    BoardChart(
        "distribution",
        "Spread",
        "Spread of runs",
        "Every run as a dot; from four runs up a sandbox around the middle half, with the median",
        "runs",
        lambda v: distribution_figure(v["sets"], time=v["time"]),
        lambda v: distribution_table(v["sets"], time=v["time"]),
        selected=15,
    ),
    BoardChart(
        "survival",
        "Finished by t",
        "Share of runs finished by time t",
        "A run that never reaches the target keeps the share below 100 %",
        "runs",
        lambda v: survival_figure(v["sets"], time=v["time"]),
        lambda v: survival_table(v["sets"], time=v["time"]),
        selected=5,
    ),
    BoardChart(
        "scaling",
        "Speed-up",
        "Speed-up with more accelerators",
        "Systems of one submitter with the same accelerator, against perfect scaling",
        "board",
        lambda v: scaling_figure(v["board"], time=v["time"]),
        lambda v: scaling_table(v["board"], time=v["time"]),
    ),
)
BY_NAME = {chart.name: chart for chart in CHARTS}

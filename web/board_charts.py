"""The charts of a training board: name, title, description and required input of each.

Each is made from one view with "board", "target", "against", "divisions" (of records) and "note",
"sets" (board entries with their runs) and "reference"; a chart reads what it `needs` of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from web.board_chart import pareto_figure, pareto_table
from web.chart_parts import Figure, Table
from web.curves_chart import convergence_curves_figure, convergence_curves_table
from web.distribution_chart import distribution_figure, distribution_table
from web.records_chart import records_figure, records_table
from web.scaling_chart import scaling_figure, scaling_table
from web.survival_chart import survival_figure, survival_table

View = Mapping[str, Any]
Need = Literal["board", "records", "runs", "curves"]


@dataclass(frozen=True)
class BoardChart:
    """One chart of a board. `selected` is how many submissions it shows unless some are named."""

    name: str
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
        "Time against cost, energy, quality or latency",
        "on the line nothing is better in both",
        "board",
        lambda v: pareto_figure(v["board"], v["against"], lower_quality=_lower_quality(v)),
        lambda v: pareto_table(v["board"], v["against"], lower_quality=_lower_quality(v)),
    ),
    BoardChart(
        "records",
        "Record history",
        "each division's record over time; small marks were lower, but not by more than chance",
        "records",
        lambda v: records_figure(v["divisions"], v["note"]),
        lambda v: records_table(v["divisions"]),
    ),
    BoardChart(
        "curves",
        "Convergence",
        "quality of every run against time and epochs, with the target and the reference",
        "curves",
        lambda v: convergence_curves_figure(v["sets"], v["target"], v["reference"]),
        lambda v: convergence_curves_table(v["sets"], v["target"]),
        selected=3,
    ),
    BoardChart(
        "distribution",
        "Spread of runs",
        "every run as a dot; from four runs up a box around the middle half, with the median",
        "runs",
        lambda v: distribution_figure(v["sets"]),
        lambda v: distribution_table(v["sets"]),
        selected=15,
    ),
    BoardChart(
        "survival",
        "Chance of being done in time",
        "share of runs at the target by then; a run that never got there keeps it below 100 %",
        "runs",
        lambda v: survival_figure(v["sets"]),
        lambda v: survival_table(v["sets"]),
        selected=5,
    ),
    BoardChart(
        "scaling",
        "Speed-up with more accelerators",
        "systems of one submitter with the same accelerator, against perfect scaling",
        "board",
        lambda v: scaling_figure(v["board"]),
        lambda v: scaling_table(v["board"]),
    ),
)
BY_NAME = {chart.name: chart for chart in CHARTS}

"""The charts of a board by name: each from a view to a figure with its table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from web.charts.curves import board_curves_chart
from web.charts.hardware import scaling_chart
from web.charts.parts import Chart, View
from web.charts.records import records_chart
from web.charts.spread import distribution_chart
from web.charts.tradeoffs import pareto_chart

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
    draw: Callable[[View], Chart]
    selected: int = 0


CHARTS = (
    BoardChart(
        "curves",
        "Convergence",
        "Convergence",
        "Quality of every run, with the target and the reference",
        "curves",
        lambda v: board_curves_chart(
            v["sets"], v["target"], v["reference"], v["counts"], time=v["time"]
        ),
        selected=3,
    ),
    BoardChart(
        "records",
        "Records",
        "First place over time",
        "Each step is a new holder of first place. Hollow marks are better means without it",
        "records",
        lambda v: records_chart(v["divisions"], v["note"], time=v["time"]),
    ),
    BoardChart(
        "distribution",
        "Spread",
        "Spread of runs",
        "Every run as a dot. From four runs up a bar holds the middle half, with the median",
        "runs",
        lambda v: distribution_chart(v["sets"], time=v["time"]),
        selected=15,
    ),
    BoardChart(
        "scaling",
        "Speed-up",
        "Speed-up with more accelerators",
        "Systems of one submitter with the same accelerator, against perfect scaling",
        "board",
        lambda v: scaling_chart(v["board"], time=v["time"]),
    ),
    BoardChart(
        "pareto",
        "Trade-offs",
        "Time against cost, energy, quality or latency",
        "On the line, no entry is better in both",
        "board",
        lambda v: pareto_chart(
            v["board"],
            v["against"],
            lower_quality=v["target"]["direction"] == "lower",
            time=v["time"],
        ),
    ),
)
BY_NAME = {chart.name: chart for chart in CHARTS}

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
    """One chart of a board. board_chart.html has its words.

    `selected` is how many submissions it shows unless some are named.
    """

    name: str
    needs: Need
    draw: Callable[[View], Chart]
    selected: int = 0


CHARTS = (
    BoardChart("curves", "curves", board_curves_chart, selected=3),
    BoardChart("records", "records", records_chart),
    BoardChart("distribution", "runs", distribution_chart, selected=15),
    BoardChart("scaling", "board", scaling_chart),
    BoardChart("pareto", "board", pareto_chart),
)
BY_NAME = {chart.name: chart for chart in CHARTS}

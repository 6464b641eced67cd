"""The charts of a board by name: each from a view to a figure with its table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from web.charts.curves import board_curves_chart
from web.charts.hardware import scaling_chart, scaling_families
from web.charts.parts import Chart, View
from web.charts.records import records_chart
from web.charts.spread import distribution_chart
from web.charts.tradeoffs import known_figures, pareto_chart

Need = Literal["board", "records", "runs", "curves"]


@dataclass(frozen=True)
class BoardChart:
    """One chart of a board. board_chart.html has its words.

    `selected` is how many submissions it shows unless some are named. `is_drawn` says whether
    a board has enough for it.
    """

    name: str
    needs: Need
    draw: Callable[[View], Chart]
    selected: int = 0
    is_drawn: Callable[[View], bool] = lambda _: True


CHARTS = (
    BoardChart("distribution", "runs", distribution_chart, selected=15),
    BoardChart("records", "records", records_chart),
    BoardChart("curves", "curves", board_curves_chart, selected=3),
    BoardChart("scaling", "board", scaling_chart, is_drawn=lambda b: bool(scaling_families(b))),
    BoardChart("pareto", "board", pareto_chart, is_drawn=lambda b: bool(known_figures(b))),
)
BY_NAME = {chart.name: chart for chart in CHARTS}

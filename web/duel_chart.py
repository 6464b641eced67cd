"""The figure of a duel: the times of both sides, pair by pair in the order of training."""

from collections.abc import Mapping
from typing import Any

from finishline.rules.verification.duel import SIDES, Side
from web.chart_parts import Figure, axis, layout, time_unit

View = Mapping[str, Any]
SYMBOLS: dict[Side, str] = {"challenger": "circle", "holder": "square-open"}


def duel_figure(duel: View) -> Figure:
    """Seconds of challenger and holder in each pair, joined by a line; lower is faster.

    A run that did not reach the target has no time and no dot.
    """
    pairs = duel["pairs"]
    known = [pair[side]["seconds"] for pair in pairs for side in SYMBOLS if pair[side]["seconds"]]
    unit, scale = time_unit(known)
    both = [pair for pair in pairs if pair["ratio"] is not None]
    joins = {
        "type": "scatter",
        "mode": "lines",
        "name": "pair",
        "showlegend": False,
        "x": [x for pair in both for x in (pair["number"], pair["number"], None)],
        "y": [y for pair in both for y in (*_seconds(pair, scale), None)],
        "line": {"width": 2},
        "hoverinfo": "skip",
        "meta": {"paint": "front"},
    }
    return {
        "data": [joins, *(_dots(pairs, side, scale) for side in SYMBOLS)],
        "layout": layout(
            xaxis=axis("Pair", tickmode="linear", tick0=1, dtick=1),
            yaxis=axis(f"Time to accuracy ({unit})"),
            height=320,
        ),
    }


def _seconds(pair: View, scale: float) -> tuple[float, ...]:
    return tuple(pair[side]["seconds"] / scale for side in SYMBOLS)


def _dots(pairs: list[View], side: Side, scale: float) -> dict[str, Any]:
    reached = [pair for pair in pairs if pair[side]["seconds"] is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": side,
        "x": [pair["number"] for pair in reached],
        "y": [pair[side]["seconds"] / scale for pair in reached],
        "hovertemplate": f"%{{y:.5~g}}<extra>{side}, pair %{{x}}</extra>",
        "marker": {"symbol": SYMBOLS[side], "size": 11, "line": {"width": 2}},
        "meta": {"paint": "series", "series": SIDES.index(side)},
    }

"""The figure of a roofline: what a worker allows, and where its trainings are."""

from collections.abc import Mapping
from typing import Any

from web.chart_parts import Figure, axis, label, layout, plain

View = Mapping[str, Any]

DECADES = 10.0
FALLBACK = (0.1, 1000.0)
GIGA_IN_TERA = 1_000.0
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def roofline_figure(found: View) -> Figure:
    """TFLOP/s against FLOP per byte, both logarithmic.

    Each floating type has a roof: a slope where the memory's bandwidth binds, then flat. A point is
    the training of one attempt. Without a measured bandwidth a roof is flat all the way.
    """
    low, high = _span(found)
    roofs = [
        _roof(order, roof, found["copy_gb_per_second"], low, high)
        for order, roof in enumerate(found["roofs"])
    ]
    return {
        "data": [*roofs, *([_dots(found["points"])] if found["points"] else [])],
        "layout": layout(
            xaxis=axis("Intensity (FLOP per byte)", type="log"),
            yaxis=axis("Arithmetic (TFLOP/s)", type="log"),
            height=380,
        ),
    }


def _span(found: View) -> tuple[float, float]:
    """From a decade below what is left of everything to a decade above what is right of it."""
    bandwidth = found["copy_gb_per_second"]
    places = [point["intensity"] for point in found["points"]]
    if bandwidth:
        places += [GIGA_IN_TERA * roof["tflops"] / bandwidth for roof in found["roofs"]]
    if not places:
        return FALLBACK
    return min(places) / DECADES, max(places) * DECADES


def _roof(
    order: int, roof: View, bandwidth: float | None, low: float, high: float
) -> dict[str, Any]:
    top = roof["tflops"]
    x, y = [low, high], [top, top]
    if bandwidth:
        ridge = GIGA_IN_TERA * top / bandwidth
        x, y = [low, ridge, high], [low * bandwidth / GIGA_IN_TERA, top, top]
    name = plain(roof["precision"])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"roof, {name}",
        "x": x,
        "y": y,
        "line": {"width": 2, "dash": DASHES[order % len(DASHES)]},
        "hovertemplate": f"%{{y:.3~g}} TFLOP/s<extra>roof, {name}</extra>",
        "meta": {"paint": "series", "series": order},
    }


def _dots(points: list[View]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "training of an attempt",
        "x": [point["intensity"] for point in points],
        "y": [point["achieved_tflops"] for point in points],
        "text": [_words(point) for point in points],
        "hovertemplate": "%{text}<br>%{y:.3~g} TFLOP/s at %{x:.3~g} FLOP per byte<extra></extra>",
        "marker": {"size": 10, "symbol": "diamond", "line": {"width": 1}},
        "meta": {"paint": "front"},
    }


def _words(point: View) -> str:
    about = label(point["model"] or f"{point['benchmark']} reference")
    return f"{about} ({plain(point['precision'] or 'type not known')})"

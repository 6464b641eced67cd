"""The figure of a calibration: the curves of its runs, their mean and the band, size by size."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.chart_parts import Figure, axis, band_traces, layout, quality_axis, target_line

View = Mapping[str, Any]


def calibration_figure(sizes: Sequence[View], runs: Sequence[View], target: View) -> Figure:
    """One view for each batch size, evaluation by evaluation.

    `sizes` are those of the API's calibration, `runs` those of its finished runs.
    """
    traces: list[dict[str, Any]] = []
    for size in sizes:
        view, points = view_name(size), size["band"]
        places = [point["index"] for point in points]
        own = [run["quality"] for run in runs if run["batch_size"] == size["batch_size"]]
        traces += band_traces(points, places, view=view)
        traces += [_run(quality, order, view) for order, quality in enumerate(own)]
        if points:
            traces.append(_mean(places, points, view))
    return {
        "data": traces,
        "layout": layout(
            xaxis=axis("Evaluation"),
            yaxis=quality_axis(target),
            shapes=[target_line(target)],
            height=420,
            meta={
                "views": [
                    {"name": view_name(size), "label": view_name(size), "title": "Evaluation"}
                    for size in sizes
                ]
            },
        ),
    }


def view_name(size: View) -> str:
    """What the view of a batch size is called."""
    return f"batch size {size['batch_size']}"


def largest_shift(band: Sequence[View]) -> float | None:
    """How far two bands are apart where their means differ most, with its sign."""
    shifts = [point["mean_difference"] for point in band]
    return max(shifts, key=abs, default=None)


def _run(quality: Sequence[float], order: int, view: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "a run",
        "legendgroup": f"runs {view}",
        "showlegend": order == 0,
        "x": list(range(1, len(quality) + 1)),
        "y": list(quality),
        "line": {"width": 1},
        "opacity": 0.5,
        "hovertemplate": f"%{{y:.5~g}}<extra>run {order + 1}</extra>",
        "meta": {"paint": "series", "series": 0, "view": view},
    }


def _mean(places: Sequence[int], points: Sequence[View], view: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "mean",
        "x": list(places),
        "y": [point["mean"] for point in points],
        "line": {"width": 2.5, "dash": "dot"},
        "hovertemplate": "%{y:.5~g}<extra>mean</extra>",
        "meta": {"paint": "series", "series": 1, "view": view},
    }

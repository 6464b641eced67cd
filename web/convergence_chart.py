"""The figure of reference convergence: epochs or samples to the target against batch size."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.chart_parts import Figure, axis, empty_figure, label, layout, plain

PAINTS = {"pass": "status-verified", "fail": "status-rejected", "missing": "status-inconclusive"}
SYMBOLS = {"pass": "circle", "fail": "x", "missing": "diamond-open"}
NOTHING = "Nobody has measured how the reference converges, and no submission tells its batch size."
NAMES = {"pass": "passes", "fail": "converges too fast", "missing": "no point to hold it against"}

View = Mapping[str, Any]


def convergence_figure(convergence: View) -> Figure:
    """The reference's points with their pruned envelope and limit, and the submissions on it."""
    unit, points = convergence["unit"], convergence["points"]
    calibration, places = convergence.get("calibration"), convergence["submissions"]
    measured = calibration["points"] if calibration else []
    sizes = [item["batch_size"] for item in (*points, *measured, *places)]
    amounts = [item["mean"] for item in (*points, *measured, *places)]
    if not sizes:
        return empty_figure(NOTHING)
    return {
        "data": [
            *_lines(convergence["envelope"], unit, allowance=convergence["allowance"]),
            *_points(points, unit),
            *(_calibration(calibration, unit) if calibration else []),
            *_submissions(places, unit),
        ],
        "layout": layout(
            xaxis=axis("Global batch size", sizes),
            yaxis=axis(f"{unit.capitalize()} to converge", amounts),
            height=460,
        ),
    }


def _lines(envelope: Sequence[View], unit: str, *, allowance: float) -> list[dict[str, Any]]:
    if not envelope:
        return []
    sizes = [place["batch_size"] for place in envelope]
    lines = [_line("reference mean", sizes, [place["mean"] for place in envelope], "front")]
    held = [place for place in envelope if place["lowest"] is not None]
    if held:
        sizes = [place["batch_size"] for place in held]
        limit = [place["lowest"] - allowance for place in held]
        lines.append(_line(f"least {unit} allowed", sizes, limit, "target", dash="dash"))
    return lines


def _line(
    name: str, x: Sequence[float], y: Sequence[float], paint: str, **line: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"width": 2, **line},
        "hoverinfo": "skip",
        "meta": {"paint": paint},
    }


def _points(points: Sequence[View], unit: str) -> list[dict[str, Any]]:
    traces = []
    for pruned, name in ((False, "reference point"), (True, "pruned point")):
        group = [point for point in points if point["pruned"] is pruned]
        if group:
            symbol = "square-open" if pruned else "square"
            texts = [f"{p['mean']:,.6g} ± {p['stdev']:,.3g} {unit}" for p in group]
            traces.append(_dots(name, group, texts, symbol, "front"))
    return traces


def _calibration(calibration: View, unit: str) -> list[dict[str, Any]]:
    """The points that were measured and adopted, with the standard deviation of their runs."""
    points = calibration["points"]
    texts = [f"{p['mean']:,.6g} ± {p['stdev']:,.3g} {unit}" for p in points]
    name = f"calibration {calibration['version']}, adopted"
    dots = _dots(name, points, texts, "diamond-cross-open", "series")
    dots["error_y"] = {"type": "data", "array": [p["stdev"] for p in points], "width": 4}
    dots["meta"] = {"paint": "series", "series": 1}
    return [dots]


def _submissions(places: Sequence[View], unit: str) -> list[dict[str, Any]]:
    traces = []
    for verdict in ("pass", "fail", "missing", None):
        group = [place for place in places if place["verdict"] == verdict]
        if not group:
            continue
        texts = [_submission_text(place, unit) for place in group]
        name = f"submission, {NAMES.get(verdict or '', 'not judged')}"
        dots = _dots(
            name,
            group,
            texts,
            SYMBOLS.get(verdict or "", "circle-open"),
            PAINTS.get(verdict or "", "status-claimed"),
        )
        dots["customdata"] = [f"/submissions/{place['id']}" for place in group]
        traces.append(dots)
    return traces


def _submission_text(place: View, unit: str) -> str:
    return "<br>".join(
        (
            plain(place["model"], longest=60),
            label(place["submitter"]),
            f"{place['mean']:,.6g} {unit}" + (", normalised" if place["normalised"] else ""),
        )
    )


def _dots(
    name: str, places: Sequence[View], texts: Sequence[str], symbol: str, paint: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [place["batch_size"] for place in places],
        "y": [place["mean"] for place in places],
        "text": list(texts),
        "hovertemplate": "%{text}<br>batch size %{x:,}<extra></extra>",
        "marker": {"symbol": symbol, "size": 10, "line": {"width": 2}},
        "meta": {"paint": paint},
    }

"""Figures of convergence: over time, of a reference by batch size, and of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.chart_parts import (
    Curves,
    Figure,
    Table,
    axis,
    band_traces,
    columns,
    empty_figure,
    label,
    layout,
    names_of,
    plain,
    series_marks,
    submission_row,
)
from web.compare import LETTERS
from web.formats import SECONDS, TimeFormat, number, quality
from web.names import byline, hardware

NOTHING = "No ranked submission here has a curve of two evaluations."
MOST_EVALUATIONS = 200

View = Mapping[str, Any]


def convergence_curves_figure(
    sets: Sequence[View],
    target: View,
    reference: Sequence[View] = (),
    *,
    time: TimeFormat = SECONDS,
) -> Figure:
    """Each run of each submission, one line style a submission, with target and reference.

    A set has its board "entry" and its "runs", each with its "curve" (epoch, seconds, quality, and
    their "index" where some are left out).
    `reference` has index, mean, lower and upper of each evaluation of the reference; they are of
    epochs, so they stand on that view alone.
    """
    shown = [one for one in sets if any(len(run["curve"]) > 1 for run in one["runs"])]
    if not shown and not reference:
        return empty_figure(NOTHING)
    drawn = Curves([run["curve"] for one in shown for run in one["runs"]], time)
    names = names_of([one["entry"] for one in shown])
    traces = _reference_traces(reference, view=drawn.progress) if drawn.by_epoch else []
    for order, one in enumerate(shown):
        marks, name = series_marks(order), one["entry"]["submission_id"]
        for place, run in enumerate(run for run in one["runs"] if run["curve"]):
            look = {
                "name": names[name],
                "legendgroup": name,
                "showlegend": place == 0,
                "line": {"width": 1.5, "dash": marks["dash"]},
                "marker": {"symbol": marks["symbol"], "size": 6, "line": {"width": 1}},
                "opacity": 0.55 if place else 1.0,
            }
            traces += drawn.traces(
                run["curve"], look, most=MOST_EVALUATIONS, paint="series", series=order
            )
    return drawn.figure(traces, target, height=460, progress_first=not shown)


def convergence_curves_table(
    sets: Sequence[View], target: View, *, time: TimeFormat = SECONDS
) -> Table:
    """Each run: number of evaluations, last epoch, last and best quality."""
    figures = ("Evaluations", "Last epoch", "Last evaluation", f"Best {target['metric']}")
    return Table(
        columns("Entry", "Submitter", "Hardware", "Run", figures=figures),
        tuple(
            submission_row(one["entry"], run["file"], *_cells(run, target, time))
            for one in sets
            for run in one["runs"]
        ),
    )


def _cells(run: View, target: View, time: TimeFormat) -> tuple[str, ...]:
    curve = run["curve"]
    last = curve[-1] if curve else {"epoch": None, "seconds": None}
    reached = quality(run.get("best_quality", _best(curve, target)), target["unit"])
    evaluations = str(run.get("evaluations", len(curve)))
    return evaluations, number(last["epoch"]), time(last["seconds"]), reached


def _best(curve: Sequence[View], target: View) -> float | None:
    best = max if target["direction"] == "higher" else min
    return best((point["quality"] for point in curve), default=None)


def _reference_traces(points: Sequence[View], *, view: str) -> list[dict[str, Any]]:
    if not points:
        return []
    banded = [point for point in points if point["lower"] is not None]
    mean = {
        "type": "scatter",
        "mode": "lines",
        "name": "reference mean",
        "x": [point["index"] for point in points],
        "y": [point["mean"] for point in points],
        "line": {"width": 3, "dash": "dot"},
        "hovertemplate": "%{y:.5~g} at %{x:.4~g}",
        "meta": {"paint": "front", "view": view},
    }
    return [*band_traces(banded, [point["index"] for point in banded], view=view), mean]


PAINTS = {"pass": "status-verified", "fail": "status-rejected", "missing": "status-inconclusive"}
SYMBOLS = {"pass": "circle", "fail": "x", "missing": "diamond-open"}
NOT_MEASURED = (
    "The reference's convergence was not measured, and no submission states its batch size."
)
NAMES = {"pass": "passes", "fail": "converges too fast", "missing": "no point to compare with"}


def convergence_figure(convergence: View) -> Figure:
    """The reference's points with their pruned envelope and limit, and the submissions on it."""
    unit, points = convergence["unit"], convergence["points"]
    calibration, places = convergence.get("calibration"), convergence["submissions"]
    measured = calibration["points"] if calibration else []
    sizes = [item["batch_size"] for item in (*points, *measured, *places)]
    amounts = [item["mean"] for item in (*points, *measured, *places)]
    if not sizes:
        return empty_figure(NOT_MEASURED)
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
            plain(hardware(place), longest=60),
            label(byline(place)),
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


# One shape for each submission, so that they can be told apart without their colours.
SHAPES = ("circle", "square-open", "diamond", "cross", "triangle-up-open", "x")
SPREAD = 0.5  # of the place between two submissions, that the runs of one are drawn over


def overlaid_curves(
    submissions: Sequence[View],
    names: Sequence[str],
    target: View,
    time: TimeFormat = SECONDS,
) -> Figure:
    """Quality of every run of several submissions over seconds and over epochs.

    A submission has its "curves", runs with a "curve", and its name in the legend. Where a log
    tells no epochs the second view counts evaluations.
    """
    drawn = Curves([run["curve"] for one in submissions for run in one["curves"]], time)
    traces = []
    for place, submission in enumerate(submissions):
        for order, run in enumerate(submission["curves"]):
            whose = f"{LETTERS[place]} {label(run['file'])}"
            look = {
                "name": _name(place, names[place]),
                "legendgroup": LETTERS[place],
                "showlegend": order == 0,
                "line": {"width": 1.5},
                "marker": {"size": 6, "symbol": SHAPES[place]},
                "hovertemplate": f"%{{y:.5~g}} at %{{x:.4~g}}<extra>{whose}</extra>",
            }
            meta = {"paint": "series", "series": place}
            traces += drawn.traces(run["curve"], look, most=MOST_EVALUATIONS, **meta)
    return drawn.figure(traces, target, height=460)


def run_times_figure(
    compared: Sequence[View], names: Sequence[str], time: TimeFormat = SECONDS
) -> Figure:
    """The time of every run that reached the target, submission by submission, and their means.

    `compared` are the submissions of the API's comparison, with "tta_low_seconds" and
    "tta_high_seconds" beside them, and `names` those in the legend; a mean without an interval has
    no bar.
    """
    known = [seconds for one in compared for seconds in one["run_seconds"]]
    unit, scale = time.word, time.scale
    runs = [
        _runs(place, names[place], one, scale)
        for place, one in enumerate(compared)
        if one["run_seconds"]
    ]
    bars = [bar for place, one in enumerate(compared) for bar in _interval(place, one, scale)]
    if bars:
        bars[0]["showlegend"] = True
    return {
        "data": [*runs, *bars],
        "layout": layout(
            xaxis=axis(
                "",
                tickmode="array",
                tickvals=list(range(len(compared))),
                ticktext=list(LETTERS[: len(compared)]),
                range=[-0.6, len(compared) - 0.4],
                zeroline=False,
            ),
            yaxis=axis(f"Time to accuracy ({unit})", [seconds / scale for seconds in known]),
            height=360,
        ),
    }


def _runs(place: int, name: str, one: View, scale: float) -> dict[str, Any]:
    times = one["run_seconds"]
    step = SPREAD / max(1, len(times) - 1)
    start = place - SPREAD / 2 if len(times) > 1 else place
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _name(place, name),
        "x": [start + order * step for order in range(len(times))],
        "y": [seconds / scale for seconds in times],
        "marker": {"size": 9, "symbol": SHAPES[place], "line": {"width": 1.5}},
        "hovertemplate": f"%{{y:.5~g}}<extra>{LETTERS[place]}</extra>",
        "meta": {"paint": "series", "series": place},
    }


def _name(place: int, name: str) -> str:
    return f"{LETTERS[place]} {plain(name, longest=36)}"


def _interval(place: int, one: View, scale: float) -> list[dict[str, Any]]:
    ends = (one["tta_low_seconds"], one["tta_high_seconds"])
    if one["tta_seconds"] is None or None in ends:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "95 % interval of the mean",
            "legendgroup": "interval",
            "showlegend": False,
            "x": [place + 0.36, place + 0.36],
            "y": [end / scale for end in ends],
            "line": {"width": 4},
            "hovertemplate": f"%{{y:.5~g}}<extra>{LETTERS[place]}, end of the interval</extra>",
            "meta": {"paint": "front"},
        }
    ]

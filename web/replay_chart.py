"""Figures of verifications: a replay beside its ghosts, a calibration, a head-to-head."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from finishline.rules.verification.head_to_head import SIDES, Side
from web.chart_parts import (
    Figure,
    axis,
    band_traces,
    empty_figure,
    label,
    layout,
    quality_axis,
    target_line,
)
from web.formats import SECONDS, TimeFormat
from web.progress import expected_evaluations, side_of

View = Mapping[str, Any]
NO_RACE: View = {"ghosts": [], "runs": [], "why_no_record": None}
FURTHER = 2  # Control points past where a run should end; all of them would squeeze the race.
DASHES = {"record": "solid", "claim": "dot"}


def replay_figure(verification: View, race: View = NO_RACE, time: TimeFormat = SECONDS) -> Figure:
    """Quality of each run over time and by evaluation, beside ghosts and band.

    A planned run that has not begun is an empty trace, which the page fills as evaluations arrive.
    The band binds by evaluation; over seconds it stands at the pace of the replay, or of the claim
    before there is one.
    """
    points = verification["control_points"]
    done = {run["index"]: run["evaluations"] for run in _runs(verification, race)}
    runs = sorted(set(range(verification["runs_planned"] or 0)) | set(done))
    places = [point["index"] for point in points]
    pace = _pace(list(done.values()), race["ghosts"])
    bands = band_traces(points, places, view="evaluations")
    if pace:
        shown = max(len(pace), expected_evaluations(verification) or 0) + FURTHER
        bands += band_traces(points[:shown], _extended(pace, places[:shown]), view="seconds")
    ghosts = [trace for ghost in race["ghosts"] for trace in ghost_traces(ghost)]
    traces = [
        _run_trace(verification, run, done.get(run, []), view)
        for run in runs
        for view in ("seconds", "evaluations")
    ]
    data = [*bands, *ghosts, *traces]
    for trace in data:
        if trace["meta"]["view"] == "seconds":
            trace["x"] = [at / time.scale for at in trace["x"]]
    title = f"Time on the clock ({time.word})"
    return {
        "data": data,
        "layout": layout(
            xaxis=axis(title, rangemode="tozero"),
            yaxis=quality_axis(verification["target"]),
            shapes=[target_line(verification["target"])],
            height=420,
            meta={
                "scale": time.scale,
                "views": [
                    {"name": "seconds", "label": time.word, "title": title},
                    {"name": "evaluations", "label": "evaluations", "title": "Evaluation"},
                ],
            },
        ),
    }


def _runs(verification: View, race: View) -> Sequence[View]:
    report = verification["report"]
    runs: Sequence[View] = report["runs"] if report else race["runs"]
    return runs


def _pace(curves: Sequence[Sequence[View]], ghosts: Sequence[View]) -> list[float]:
    """Seconds at each evaluation: the mean over the replay's runs, else the claim's."""
    longest = max((len(curve) for curve in curves), default=0)
    if longest:
        return [
            fmean(curve[place]["seconds"] for curve in curves if len(curve) > place)
            for place in range(longest)
        ]
    claim = next((ghost for ghost in ghosts if ghost["role"] == "claim"), None)
    return [point["seconds"] for point in claim["points"]] if claim else []


def _extended(pace: Sequence[float], places: Sequence[int]) -> list[float]:
    """The pace at each place (from 1), past its end as if it went on evenly."""
    each = pace[-1] / len(pace)
    return [
        pace[place - 1] if place <= len(pace) else pace[-1] + each * (place - len(pace))
        for place in places
    ]


def _run_trace(verification: View, run: int, curve: Sequence[View], view: str) -> dict[str, Any]:
    side = side_of(verification, run)
    # One colour for all runs of a side.
    series = run if side is None else SIDES.index(side)
    by_time = view == "seconds"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"run {run + 1}" if side is None else f"run {run + 1} ({side})",
        "x": [p["seconds"] if by_time else place for place, p in enumerate(curve, start=1)],
        "y": [point["quality"] for point in curve],
        "line": {"width": 2},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.5~g} at %{x:.4~g}",
        "meta": {"paint": "series", "series": series, "run": run, "view": view},
    }


def ghost_traces(ghost: View) -> list[dict[str, Any]]:
    """A ghost over seconds, and by evaluation where it stands beside those of the replay."""
    role = ghost["role"]
    name = "claim, mean" if role == "claim" else f"record: {label(ghost['model'])}"
    if role == "record" and ghost["is_own"]:
        name = "record: the claim's median run"
    beside = [point for point in ghost["points"] if point["index"] is not None]
    look = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "line": {"width": 3, "dash": DASHES[role]},
        "opacity": 0.75,
        "hovertemplate": f"%{{y:.5~g}} at %{{x:.4~g}}<extra>{name}</extra>",
    }
    return [
        {
            **look,
            "x": [point["seconds"] if view == "seconds" else point["index"] for point in shown],
            "y": [point["quality"] for point in shown],
            "meta": {"paint": "front", "ghost": role, "view": view},
        }
        for view, shown in (("seconds", ghost["points"]), ("evaluations", beside))
    ]


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
    """Name of the view of a batch size."""
    return f"batch size {size['batch_size']}"


def largest_shift(band: Sequence[View]) -> float | None:
    """Largest difference between the means of two bands, with its sign; None without points."""
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


NO_PAIR = "No pair could be compared: other programs disturbed each, or the infrastructure failed."
NONE_REACHED = "No run reached the target."
SYMBOLS: dict[Side, str] = {"challenger": "circle", "holder": "square-open"}


def head_to_head_figure(head_to_head: View, time: TimeFormat = SECONDS) -> Figure:
    """Seconds of challenger and holder in each pair, joined by a line; lower is faster.

    A run that did not reach the target has no time and no dot.
    """
    pairs = head_to_head["pairs"]
    known = [pair[side]["seconds"] for pair in pairs for side in SYMBOLS if pair[side]["seconds"]]
    if not known:
        is_void = any(pair[side]["ending"] == "void" for pair in pairs for side in SYMBOLS)
        return empty_figure(NO_PAIR if is_void else NONE_REACHED)
    unit, scale = time.word, time.scale
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

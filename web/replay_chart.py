"""The figure of a replay: its runs, the ghosts they run against, the band they must stay in."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from finishline.rules.verification.duel import SIDES
from web.chart_parts import Figure, axis, band_traces, label, layout, quality_axis, target_line
from web.progress import expected_evaluations, side_of

View = Mapping[str, Any]
NO_RACE: View = {"ghosts": [], "runs": []}
FURTHER = 2  # Control points past where a run should end; all of them would squeeze the race.
DASHES = {"record": "solid", "claim": "dot"}


def replay_figure(verification: View, race: View = NO_RACE) -> Figure:
    """Quality of each run over seconds and by evaluation, beside ghosts and band.

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
    ghosts = [trace for ghost in race["ghosts"] for trace in _ghost_traces(ghost)]
    traces = [
        _run_trace(verification, run, done.get(run, []), view)
        for run in runs
        for view in ("seconds", "evaluations")
    ]
    return {
        "data": [*bands, *ghosts, *traces],
        "layout": layout(
            xaxis=axis("Time on the clock (seconds)", rangemode="tozero"),
            yaxis=quality_axis(verification["target"]),
            shapes=[target_line(verification["target"])],
            height=420,
            meta={
                "views": [
                    {
                        "name": "seconds",
                        "label": "seconds",
                        "title": "Time on the clock (seconds)",
                    },
                    {"name": "evaluations", "label": "evaluations", "title": "Evaluation"},
                ]
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


def _ghost_traces(ghost: View) -> list[dict[str, Any]]:
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

"""The figures of a comparison: every run's curve, and the times of the runs beside each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.chart_parts import Curves, Figure, axis, label, layout, plain
from web.compare import LETTERS
from web.curves_chart import MOST_EVALUATIONS
from web.formats import SECONDS, TimeFormat

View = Mapping[str, Any]
# One shape for each submission, so that they can be told apart without their colours.
SYMBOLS = ("circle", "square-open", "diamond", "cross", "triangle-up-open", "x")
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
                "marker": {"size": 6, "symbol": SYMBOLS[place]},
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
        "marker": {"size": 9, "symbol": SYMBOLS[place], "line": {"width": 1.5}},
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

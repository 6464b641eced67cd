"""Charts of quality over time and over epochs: of a board, a submission, or several of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finishline.rules.benchmarks.quality import metric_words
from web.charts import parts as draw
from web.charts.parts import Chart, Row, Table, Trace, View
from web.compare import LETTERS
from web.formats import SECONDS, TimeFormat, number, quality, seconds_exact

NOTHING = "No ranked submission here has a curve of two evaluations."
MOST_EVALUATIONS = 200
FEWEST_TO_FIT = 6
STRIP_PLACES = 60  # that dots of a strip are stacked at
HOVER = "%{y:.5~g} at %{x:.4~g}"


class Curves:
    """Curves over time, and over epochs, or evaluations where a log does not tell epochs.

    A curve is a list of evaluations. `counts` is the word for what its epochs are, such as steps.
    """

    def __init__(self, runs: Iterable[View], time: TimeFormat, counts: str = "epochs") -> None:
        self.time = time
        self.curves = [run["curve"] for run in runs]
        self.by_epoch = all(point["epoch"] is not None for curve in self.curves for point in curve)
        self.progress = counts if self.by_epoch else "evaluations"

    def traces(
        self, curve: Sequence[View], name: str, paint: str | int, look: Mapping[str, Any]
    ) -> list[Trace]:
        """A curve once for each view, with at most so many points."""
        drawn = draw.even_sample(list(enumerate(curve, start=1)), MOST_EVALUATIONS)
        places = {
            "seconds": [point["seconds"] / self.time.scale for _, point in drawn],
            self.progress: [
                float(point["epoch"]) if self.by_epoch else number_of(point, place)
                for place, point in drawn
            ],
        }
        heights = [point["quality"] for _, point in drawn]
        usual = {"hover": HOVER, "mode": "lines+markers"}
        return draw.in_views(name, places, heights, paint, **(usual | dict(look)))

    def chart(
        self,
        traces: Iterable[Trace],
        rows: Table,
        target: View,
        *,
        height: int = 460,
        progress_first: bool = False,
    ) -> Chart:
        """The chart of such traces, with the target and a button for each view."""
        unit = self.time.word
        views = [
            {"name": "seconds", "label": unit, "title": f"Time on the clock ({unit})"},
            {"name": self.progress, "label": self.progress, "title": self.progress.capitalize()},
        ]
        if progress_first:
            views.reverse()
        return draw.chart(
            traces,
            rows,
            xaxis=draw.axis(views[0]["title"]),
            yaxis=fitted_axis(target, self.curves),
            shapes=draw.target_lines(target),
            height=height,
            meta={"views": views},
        )


def fitted_axis(target: View, curves: Iterable[Sequence[View]]) -> dict[str, Any]:
    """The axis of a quality for the better two thirds of the points, which decide."""
    is_higher = target["direction"] == "higher"
    found = sorted((point["quality"] for curve in curves for point in curve), reverse=not is_higher)
    ends = [found[len(found) // 3], found[-1], target["value"]] if found else []
    pad = 0.08 * (max(ends) - min(ends)) if len(found) >= FEWEST_TO_FIT else 0.0
    fit = {"range": [min(ends) - pad, max(ends) + pad]} if pad else {}
    return draw.quality_axis(target) | fit


def number_of(point: View, place: int) -> int:
    """Number of a point's evaluation in its run, from 1. Its place where none is left out."""
    return int(point.get("index", place))


def left_out(runs: Sequence[View]) -> str | None:
    """Note for a page that leaves out evaluations of its runs. None where it shows each."""
    known = sum(run.get("evaluations", len(run["curve"])) for run in runs)
    shown = sum(len(run["curve"]) for run in runs)
    if shown == known:
        return None
    return f"{shown:,} of {known:,} evaluations are shown, evenly spaced. The logs have all."


def evaluations_table(runs: Iterable[tuple[str, View]], target: View, *, first: str) -> Table:
    """Every evaluation of named runs. `first` is the heading of the names."""
    named = list(runs)
    by_samples = any(
        point.get("samples") is not None and point["epoch"] is None
        for _, run in named
        for point in run["curve"]
    )
    field = "samples" if by_samples else "epoch"
    rows = [
        Row(
            (
                name,
                str(number_of(point, place)),
                number(point.get(field)),
                seconds_exact(point["seconds"]),
                quality(point["quality"], target["unit"]),
            )
        )
        for name, run in named
        for place, point in enumerate(run["curve"], start=1)
    ]
    figures = ("Evaluation", field.capitalize(), "Seconds", "Quality")
    return draw.table(rows, first, figures=figures).without_empty_columns()


def runs_chart(
    runs: Sequence[View],
    target: View,
    ghosts: Sequence[View] = (),
    *,
    time: TimeFormat = SECONDS,
) -> Chart:
    """Quality of each run of a submission over seconds, with ghosts, and over epochs."""
    rows = evaluations_table([(run["file"], run) for run in runs], target, first="Run")
    if is_strip(runs):
        return strip_chart(runs, rows, target, time)
    drawn = Curves(runs, time)
    traces = [trace for each in ghosts for trace in ghost_traces(each, time)[:1]]
    look = draw.RUN | {"showlegend": False}
    for run in runs:
        traces += drawn.traces(run["curve"], draw.label(run["file"]), "status-measured", look)
    return drawn.chart(traces, rows, target, height=420)


def strip_chart(runs: Sequence[View], rows: Table, target: View, time: TimeFormat) -> Chart:
    """A dot for the time or quality of each run, stacked where equal. It is hollow for a miss."""
    budget, title = target.get("budget_seconds"), f"Time to accuracy ({time.word})"
    if budget is None:
        ended = [
            (run, run["seconds"] or run["curve"][-1]["seconds"]) for run in runs if run["curve"]
        ]
        ends = [(run, seconds / time.scale) for run, seconds in ended]
    else:
        title = f"{draw.plain(metric_words(target['metric']))} within {budget:g} s"
        within = [[each for each in run["curve"] if each["seconds"] <= budget] for run in runs]
        ends = [(run, at[-1]["quality"]) for run, at in zip(runs, within, strict=True) if at]
    known = [at for _, at in ends]
    step = (max(known) - min(known)) / STRIP_PLACES or 1.0
    stacks: Counter[int] = Counter()
    heights = []
    for at in known:
        heights.append(stacks[round(at / step)])
        stacks[round(at / step)] += 1
    top = max(stacks.values()) + 1
    found = draw.dots(
        "run",
        known,
        heights,
        "status-measured",
        symbol=["circle-open" if run["seconds"] is None else "circle" for run, _ in ends],
        hover="%{x:.4~g}, %{text}<extra></extra>",
        text=[draw.label(run["file"]) for run, _ in ends],
    )
    flat = draw.axis("", range=[-1, top], showticklabels=False, showgrid=False, ticks="")
    layout: dict[str, Any] = {"height": 130 + 14 * top, "showlegend": False}
    layout["meta"] = {"about": "A dot is a run. Most have one evaluation, so they have no curve"}
    return draw.chart(
        [found], rows, xaxis=draw.axis(title, known, showgrid=True), yaxis=flat, **layout
    )


def is_strip(runs: Sequence[View]) -> bool:
    """Whether most runs have one evaluation, so that no line could be drawn."""
    counts = [len(run["curve"]) for run in runs]
    return 2 * counts.count(1) > len([count for count in counts if count])


DASHES = {"record": "solid", "claim": "dot"}


def ghost_traces(ghost: View, time: TimeFormat) -> list[Trace]:
    """A ghost over seconds, and by evaluation where the replay has the same evaluations."""
    role = ghost["role"]
    whose = "this submission" if ghost["is_own"] else draw.label(ghost["model"])
    name = "claimed runs, mean" if role == "claim" else f"{whose}, median run"
    beside = [point for point in ghost["points"] if point["index"] is not None]
    places = {
        "seconds": [point["seconds"] / time.scale for point in ghost["points"]],
        "evaluations": [point["index"] for point in beside],
    }
    return [
        draw.line(
            name,
            at,
            [point["quality"] for point in shown],
            "front",
            width=3,
            hover=f"{HOVER}<extra>{name}</extra>",
            line={"dash": DASHES[role]},
            opacity=0.75,
            meta={"ghost": role, "view": view},
        )
        for (view, at), shown in zip(places.items(), (ghost["points"], beside), strict=True)
    ]


def board_curves_chart(view: View) -> Chart:
    """Each run of each submission, one line style a submission, with target and reference.

    A set has its board "entry" and its "runs", each with its "curve". The evaluations of the
    "reference" are of epochs, so they stand on that view alone.
    """
    sets, target, time = view["sets"], view["target"], view["time"]
    reference, counts = view["reference"], view["counts"]
    best = f"Best {metric_words(target['metric'])}"
    figures = ("Evaluations", f"Last {counts.removesuffix('s')}", "Last evaluation", best)
    rows = draw.entry_table(
        (
            draw.entry_row(one["entry"], f"run {order}", *_cells(run, target, time))
            for one in sets
            for order, run in enumerate(one["runs"], start=1)
        ),
        "Run",
        figures=figures,
    )
    shown = [one for one in sets if any(len(run["curve"]) > 1 for run in one["runs"])]
    if not shown and not reference:
        return draw.empty(NOTHING, rows)
    drawn = Curves((run for one in shown for run in one["runs"]), time, counts)
    names = draw.names_of([one["entry"] for one in shown])
    traces = _reference_traces(reference, view=drawn.progress) if drawn.by_epoch else []
    for order, one in enumerate(shown):
        marks, name = draw.series_marks(order), one["entry"]["submission_id"]
        for place, run in enumerate(run for run in one["runs"] if run["curve"]):
            look = {
                "legendgroup": name,
                "showlegend": place == 0,
                "width": 1.5,
                "line": {"dash": marks["dash"]},
                "marker": {"symbol": marks["symbol"], "size": 6, "line": {"width": 1}},
                "opacity": 0.55 if place else 1.0,
            }
            traces += drawn.traces(run["curve"], names[name], order, look)
    return drawn.chart(traces, rows, target, progress_first=not shown)


def _cells(run: View, target: View, time: TimeFormat) -> tuple[str, ...]:
    curve = run["curve"]
    last = curve[-1] if curve else {"epoch": None, "seconds": None}
    reached = quality(run["best_quality"], target["unit"])
    evaluations = str(run.get("evaluations", len(curve)))
    return evaluations, number(last["epoch"]), time(last["seconds"]), reached


def _reference_traces(points: Sequence[View], *, view: str) -> list[Trace]:
    if not points:
        return []
    banded = [point for point in points if point["lower"] is not None]
    mean = draw.line(
        "reference mean",
        [point["index"] for point in points],
        [point["mean"] for point in points],
        "front",
        width=3,
        hover=HOVER,
        line={"dash": "dot"},
        meta={"view": view},
    )
    return [*draw.band_traces(banded, [point["index"] for point in banded], view=view), mean]


# One shape for each submission, so that they can be told apart without their colours.
SHAPES = ("circle", "square-open", "diamond", "cross", "triangle-up-open", "x")
SPREAD = 0.5  # of the place between two submissions, that the runs of one are drawn over


def overlaid_curves(
    submissions: Sequence[View],
    names: Sequence[str],
    target: View,
    time: TimeFormat = SECONDS,
) -> Chart:
    """Quality of every run of several submissions over seconds and over epochs."""
    runs = [(place, run) for place, one in enumerate(submissions) for run in one["curves"]]
    drawn = Curves((run for _, run in runs), time)
    traces, shown = [], set()
    for place, run in runs:
        look = {
            "legendgroup": LETTERS[place],
            "showlegend": place not in shown,
            "width": 1.5,
            "marker": {"size": 6, "symbol": SHAPES[place]},
            "hover": f"{HOVER}<extra>{LETTERS[place]} {draw.label(run['file'])}</extra>",
        }
        shown.add(place)
        traces += drawn.traces(run["curve"], _name(place, names[place]), place, look)
    named = [(f"{LETTERS[place]}, {run['file']}", run) for place, run in runs]
    return drawn.chart(traces, evaluations_table(named, target, first="Run"), target)


def run_times_chart(
    compared: Sequence[View], names: Sequence[str], time: TimeFormat = SECONDS
) -> Chart:
    """The time of every run that reached the target, and the intervals of the means.

    `compared` are the submissions of the API's comparison with the ends of their intervals.
    """
    runs: list[Trace] = []
    bars: list[Trace] = []
    rows: list[Row] = []
    for place, one in enumerate(compared):
        letter, times = LETTERS[place], one["run_seconds"]
        rows += [
            Row((f"{letter} {names[place]}", str(order), seconds_exact(seconds)))
            for order, seconds in enumerate(times, start=1)
        ]
        if times:
            runs.append(_run_dots(place, _name(place, names[place]), times, time))
        ends = (one["tta_low_seconds"], one["tta_high_seconds"])
        if one["tta_seconds"] is not None and None not in ends:
            bars.append(
                draw.line(
                    "95 % interval of the mean",
                    [place + 0.36] * 2,
                    [end / time.scale for end in ends],
                    "front",
                    width=4,
                    hover=f"%{{y:.5~g}}<extra>{letter}, end of the interval</extra>",
                    legendgroup="interval",
                    showlegend=not bars,
                )
            )
    known = [seconds / time.scale for one in compared for seconds in one["run_seconds"]]
    return draw.chart(
        [*runs, *bars],
        draw.table(rows, "Submission", figures=("Run", "Time to accuracy")),
        xaxis=draw.named_axis(LETTERS[: len(compared)]),
        yaxis=draw.axis(f"Time to accuracy ({time.word})", known),
        height=360,
    )


def _run_dots(place: int, name: str, times: Sequence[float], time: TimeFormat) -> Trace:
    step = SPREAD / max(1, len(times) - 1)
    start = place - SPREAD / 2 if len(times) > 1 else place
    return draw.dots(
        name,
        [start + order * step for order in range(len(times))],
        [seconds / time.scale for seconds in times],
        place,
        symbol=SHAPES[place],
        size=9,
        edge=1.5,
        hover=f"%{{y:.5~g}}<extra>{LETTERS[place]}</extra>",
    )


def _name(place: int, name: str) -> str:
    return f"{LETTERS[place]} {draw.plain(name, longest=36)}"

"""Charts of verifications: a replay with its ghosts, a head-to-head, a calibration."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.benchmarks.quality import GREATEST
from finishline.rules.verification.head_to_head import Side
from web.charts import parts as draw
from web.charts.curves import HOVER, fitted_axis, ghost_traces, is_strip, strip_chart
from web.charts.parts import Chart, Row, Table, Trace, View
from web.formats import DASH, SECONDS, TimeFormat, number, quality, ratio_text, seconds_exact
from web.names import byline, hardware
from web.progress import side_of

NO_RACE: View = {"ghosts": [], "runs": [], "why_no_record": None}


def replay_chart(
    verification: View,
    race: View = NO_RACE,
    time: TimeFormat = SECONDS,
    *,
    is_code: bool = False,
) -> Chart:
    """Quality of each run over time and by evaluation, with ghosts and band.

    A planned run that has not begun is an empty trace, which the page fills as evaluations arrive.
    """
    points, report = verification["control_points"], verification["report"]
    done = {run["index"]: run["evaluations"] for run in (report or race)["runs"]}
    rows = _evaluations(verification, done, is_code=is_code)
    if verification["state"] in ("done", "failed", "cancelled") and not rows.rows:
        return draw.empty("No run was evaluated.", rows)
    if report is not None:
        checks = {*verification["control_runs"], *verification["repeat_runs"]}
        runs_of = [
            {"file": f"run {run['index'] + 1}", "curve": run["evaluations"]}
            | {"seconds": run["tta_seconds"]}
            for run in report["runs"]
            if run["index"] not in checks
        ]
        if is_strip(runs_of):
            return strip_chart(runs_of, rows, verification["target"], time)
    runs = sorted(set(range(verification["runs_planned"] or 0)) | set(done))
    places = [point["index"] for point in points]
    bands = draw.band_traces(points, places, view="evaluations")
    ghosts = [trace for ghost in race["ghosts"] for trace in ghost_traces(ghost, time)]
    traces = [trace for run in runs for trace in _run(verification, run, done.get(run, []), time)]
    title = f"Time on the clock ({time.word})"
    return draw.chart(
        [*bands, *ghosts, *traces],
        rows,
        xaxis=draw.axis(title, rangemode="tozero"),
        # A run under way may be anywhere.
        yaxis=fitted_axis(verification["target"], done.values() if report else ()),
        shapes=draw.target_lines(verification["target"]),
        height=420,
        meta={
            "scale": time.scale,
            "views": [
                {"name": "seconds", "label": time.word, "title": title},
                {"name": "evaluations", "label": "evaluations", "title": "Evaluation"},
            ],
        },
    )


def _run(verification: View, run: int, curve: Sequence[View], time: TimeFormat) -> list[Trace]:
    side = side_of(verification, run)
    name, told = f"run {run + 1}", HOVER
    look: dict[str, Any] = {"showlegend": False}
    if side is not None:  # One colour and one name for all runs of a side.
        told = f"{HOVER}<extra>{name}, {side}</extra>"
        is_first = verification["head_to_head"]["order"].index(side) == run
        name, look = side, {"legendgroup": side, "showlegend": is_first}
    places = {
        "seconds": [point["seconds"] / time.scale for point in curve],
        "evaluations": range(1, len(curve) + 1),
    }
    paint = "front" if side == "holder" else "status-measured"
    heights = [point["quality"] for point in curve]
    look |= draw.RUN | {"hover": told, "meta": {"run": run}}
    return draw.in_views(name, places, heights, paint, **look)


def _evaluations(verification: View, done: Mapping[int, Sequence[View]], *, is_code: bool) -> Table:
    target = verification["target"]
    most = GREATEST.get(target["unit"]) or math.inf
    bands = {
        # A band computed from a spread may pass what a quality can be.
        p["index"]: f"{quality(max(0.0, p['lower']))} to {quality(min(most, p['upper']))}"
        for p in verification["control_points"]
    }
    rows = [
        Row(
            (
                f"Run {run + 1}",
                str(place),
                DASH if is_code else number(point["epoch"]),
                seconds_exact(point["seconds"]),
                quality(point["quality"], target["unit"]),
                quality(point.get("second_half"), target["unit"]),
                DASH if is_code else bands.get(place, DASH),
            )
        )
        for run, curve in done.items()
        for place, point in enumerate(curve, start=1)
    ]
    if not rows:
        return draw.table((), "Run", figures=("Evaluation", "Seconds", "Quality"))
    figures = ("Evaluation", "Epoch", "Seconds", "Quality", "Second half", "Band")
    return draw.table(rows, "Run", figures=figures).without_empty_columns()


NO_PAIR = "No pair could be compared: other programs disturbed each, or the infrastructure failed."
NONE_REACHED = "No run reached the target."
SIDE_SYMBOLS: dict[Side, str] = {"challenger": "circle", "holder": "circle-open"}
LETTERS: dict[Side, str] = {"holder": "A", "challenger": "B"}
WIDE = 4.0  # From this ratio of the slowest to the fastest run on, an axis is logarithmic.
PAIR_HEIGHT = 33  # The height of a row of the table next to the chart.


def counted_pairs(verification: View) -> list[View]:
    """The pairs of a head-to-head without the void ones, numbered from 1."""
    pairs: list[View] = verification["head_to_head"]["pairs"]
    counted = [pair for pair in pairs if all(pair[side]["ending"] != "void" for side in LETTERS)]
    return [{**pair, "number": number} for number, pair in enumerate(counted, start=1)]


def head_to_head_chart(pairs: Sequence[View], time: TimeFormat = SECONDS) -> Chart:
    """A row for each pair that counts, with a line from B, the challenger, to A, the holder."""
    by_time = time.quality_unit is None
    figures = ("A", "B", "B / A" if by_time else "B \u2212 A")
    rows = draw.table((_pair_row(pair, time) for pair in pairs), "Pair", "First", figures=figures)
    placed = [{side: _place_of(pair[side], time) for side in LETTERS} for pair in pairs]
    if not any(at is not None for pair in placed for at in pair.values()):
        return draw.empty(NONE_REACHED if pairs else NO_PAIR, rows)
    joined = [
        (pair[side], place) if side else (None, None)
        for place, pair in enumerate(placed)
        if None not in pair.values()
        for side in (*LETTERS, None)
    ]
    seconds, places = [x for x, _ in joined], [y for _, y in joined]
    joins = draw.line("pair", seconds, places, "front", width=1.25, opacity=0.5)
    first = placed[0]
    is_left = (first["challenger"] or 0) < (first["holder"] or 0)
    title = f"Time to accuracy ({time.word})" if by_time else time.title
    known = [at for at in seconds if at is not None]
    is_wide = by_time and bool(known) and max(known) > WIDE * min(known)
    shift = -16 if is_left else 16  # A letter is outside of its pair.
    return draw.chart(
        [joins, *(_dots([pair[side] for pair in placed], side) for side in LETTERS)],
        rows,
        xaxis=draw.axis(title, known if is_wide else (), is_log=is_wide, showgrid=True),
        yaxis=draw.named_axis(
            [str(pair["number"]) for pair in pairs],
            range=[len(pairs) - 0.5, -0.5],
            showgrid=False,
            ticks="",
        ),
        height=PAIR_HEIGHT * len(pairs) + 92,
        margin={"l": 32, "r": 16, "t": 39, "b": 53},
        showlegend=False,
        annotations=[
            {
                "text": LETTERS[side],
                "x": math.log10(at) if is_wide else at,
                "y": 0,
                "xshift": shift if side == "challenger" else -shift,
                "showarrow": False,
            }
            for side in LETTERS
            if (at := first[side]) is not None
        ],
    )


def _place_of(run: View, time: TimeFormat) -> float | None:
    """Where a run is in the chart: its time, or its quality where the board ranks by it."""
    if time.quality_unit is not None:
        return run["quality"] if run["ending"] == "reached" else None
    return None if run["seconds"] is None else run["seconds"] / time.scale


def _pair_row(pair: View, time: TimeFormat) -> Row:
    is_first = pair["challenger"]["run"] < pair["holder"]["run"]
    b, a = (_place_of(pair[side], time) for side in ("challenger", "holder"))
    gap = DASH
    if a is not None and b is not None:
        gap = ratio_text(pair["ratio"]) if time.quality_unit is None else f"{b - a:+.2g}"
    figures = (
        "missed" if pair[side].get("ending") == "missed" else time.shown(at and at * time.scale)
        for side, at in (("holder", a), ("challenger", b))
    )
    return Row((str(pair["number"]), "B" if is_first else "A", *figures, gap))


def _dots(figures: Sequence[float | None], side: Side) -> Trace:
    reached = [(at, place) for place, at in enumerate(figures) if at is not None]
    return draw.dots(
        LETTERS[side],
        [at for at, _ in reached],
        [place for _, place in reached],
        "front" if side == "holder" else "status-measured",
        symbol=SIDE_SYMBOLS[side],
        hover=f"%{{x:.5~g}}<extra>{LETTERS[side]}</extra>",
    )


def calibration_chart(sizes: Sequence[View], runs: Sequence[View], target: View) -> Chart:
    """The band and the runs of each batch size, evaluation by evaluation, in a view of its own."""
    traces: list[Trace] = []
    views, rows = [], []
    for size in sizes:
        view, points = f"batch size {size['batch_size']}", size["band"]
        views.append({"name": view, "label": view, "title": "Evaluation"})
        places = [point["index"] for point in points]
        own = [run["quality"] for run in runs if run["batch_size"] == size["batch_size"]]
        traces += draw.band_traces(points, places, view=view)
        traces += [
            draw.line(
                "a run",
                range(1, len(curve) + 1),
                curve,
                0,
                width=1,
                hover=f"%{{y:.5~g}}<extra>run {order}</extra>",
                legendgroup=f"runs {view}",
                showlegend=order == 1,
                opacity=0.5,
                meta={"view": view},
            )
            for order, curve in enumerate(own, start=1)
        ]
        if points:
            means, hover = [point["mean"] for point in points], "%{y:.5~g}<extra>mean</extra>"
            look: dict[str, Any] = {"width": 2.5, "line": {"dash": "dot"}, "meta": {"view": view}}
            traces.append(draw.line("mean", places, means, 1, hover=hover, **look))
        rows += [
            Row(
                (
                    number(size["batch_size"]),
                    str(point["index"]),
                    *(quality(point[name], target["unit"]) for name in ("mean", "lower", "upper")),
                )
            )
            for point in points
        ]
    return draw.chart(
        traces,
        draw.table(
            rows, figures=("Batch size", "Evaluation", "Mean", "Lower limit", "Upper limit")
        ),
        xaxis=draw.axis("Evaluation"),
        yaxis=draw.quality_axis(target),
        shapes=draw.target_lines(target),
        height=420,
        meta={"views": views},
    )


NOT_MEASURED = (
    "The reference's convergence was not measured, and no submission states its batch size."
)
VERDICTS: dict[str | None, tuple[str, str, str]] = {
    "pass": ("passes", "circle", "status-verified"),
    "fail": ("converges too fast", "x", "status-rejected"),
    "missing": ("no point to compare with", "diamond-open", "status-inconclusive"),
    None: ("not judged", "circle-open", "status-claimed"),
}


def convergence_chart(convergence: View) -> Chart:
    """The reference's points with their pruned envelope and limit, and the submissions on it."""
    unit, points = convergence["unit"], convergence["points"]
    calibration, places = convergence.get("calibration"), convergence["submissions"]
    measured = calibration["points"] if calibration else []
    adopted = f"calibration {calibration['version']}, adopted" if calibration else ""
    use = {True: "pruned: slower than the line between its neighbours"}
    use[False] = "of the file" if calibration else "in use"
    used = [(point, use[point["pruned"]]) for point in points]
    used += [(point, adopted) for point in measured]
    figures = ("Batch size", f"Mean ({unit})", "Standard deviation", "Least allowed")
    given = (_point_row(point, words, convergence["allowance"]) for point, words in used)
    rows = draw.table(given, "Use", figures=figures)
    every = [*points, *measured, *places]
    if not every:
        return draw.empty(NOT_MEASURED, rows)
    groups: dict[str, tuple[Sequence[View], str, str | int]] = {
        "reference point": ([p for p in points if not p["pruned"]], "square", "front"),
        "pruned point": ([p for p in points if p["pruned"]], "square-open", "front"),
        adopted: (measured, "diamond-cross-open", 1),
    }
    traces = _limits(convergence)
    for name, (group, symbol, paint) in groups.items():
        texts = [f"{p['mean']:,.6g} ± {p['stdev']:,.3g} {unit}" for p in group]
        bars = {"type": "data", "array": [p["stdev"] for p in group], "width": 4}
        more = {"error_y": bars} if name == adopted else {}
        traces += _sized_dots(name, group, texts, symbol, paint, **more)
    for verdict, (words, symbol, colour) in VERDICTS.items():
        group = [place for place in places if place["verdict"] == verdict]
        texts = [_submission_text(place, unit) for place in group]
        links = [f"/submissions/{place['id']}" for place in group]
        name = f"submission, {words}"
        traces += _sized_dots(name, group, texts, symbol, colour, customdata=links)
    return draw.chart(
        traces,
        rows,
        xaxis=draw.axis("Global batch size", [item["batch_size"] for item in every]),
        yaxis=draw.axis(f"{unit.capitalize()} to converge", [item["mean"] for item in every]),
        height=460,
    )


def _point_row(point: View, use: str, allowance: float) -> Row:
    lowest = None if point["lowest"] is None else point["lowest"] - allowance
    figures = (number(point["mean"], 7), number(point["stdev"], 4), number(lowest, 7))
    return Row((use, number(point["batch_size"]), *figures))


def _limits(convergence: View) -> list[Trace]:
    """The mean of the reference, and the least that is allowed."""
    envelope, allowance = convergence["envelope"], convergence["allowance"]
    held = [point for point in envelope if point["lowest"] is not None]
    limits = [point["lowest"] - allowance for point in held]
    sizes, means = [p["batch_size"] for p in envelope], [p["mean"] for p in envelope]
    least, allowed = f"least {convergence['unit']} allowed", [p["batch_size"] for p in held]
    lines = [
        draw.line("reference mean", sizes, means, "front"),
        draw.line(least, allowed, limits, "target", line={"dash": "dash"}),
    ]
    return [each for each in lines if each["x"]]


def _sized_dots(
    name: str,
    places: Sequence[View],
    texts: Sequence[str],
    symbol: str,
    paint: str | int,
    **more: Any,
) -> list[Trace]:
    """Dots at their batch sizes. None where there are no places."""
    sizes, means = [p["batch_size"] for p in places], [p["mean"] for p in places]
    hover = "%{text}<br>batch size %{x:,}<extra></extra>"
    look: dict[str, Any] = {"symbol": symbol, "size": 10, "hover": hover, "text": list(texts)}
    return [draw.dots(name, sizes, means, paint, **look, **more)] if places else []


def _submission_text(place: View, unit: str) -> str:
    figure = f"{place['mean']:,.6g} {unit}" + (", normalised" if place["normalised"] else "")
    return "<br>".join((draw.plain(hardware(place), longest=60), draw.label(byline(place)), figure))

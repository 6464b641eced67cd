import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from web.charts import curves_figure, pareto_figure
from web.replay_chart import replay_figure

View = dict[str, Any]
Make = dict[str, Callable[..., View]]


def assert_plotly_accepts(figure: View) -> None:
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def trace_named(figure: View, name: str) -> View:
    return next(trace for trace in figure["data"] if trace["name"] == name)


def priced(make: Make, name: str, tta_seconds: float, cost_usd: float | None) -> View:
    changes = {"tta_seconds": tta_seconds, "cost_usd": cost_usd}
    return make["entry"](submission_id=name, **changes)


def test_plotly_accepts_every_figure(
    make: Make, busy_board: View, curves: list[View], target: View, control_points: list[View]
) -> None:
    for figure in (
        pareto_figure(busy_board),
        pareto_figure(make["board"]()),
        pareto_figure(make["board"](make["entry"](cost_usd=None))),
        curves_figure(curves, target, control_points),
        curves_figure([], target),
        replay_figure(make["verification"]()),
        replay_figure(make["queued_verification"](runs_planned=None, control_points=[])),
    ):
        assert_plotly_accepts(figure)


def test_plotly_would_refuse_a_wrong_figure() -> None:
    with pytest.raises(ValueError, match="Invalid property"):
        assert_plotly_accepts({"data": [{"type": "scatter", "colour": "red"}], "layout": {}})


def test_the_front_holds_what_nothing_beats_in_both(make: Make) -> None:
    board = make["board"](
        priced(make, "fast", 10.0, 9.0),
        priced(make, "beaten", 20.0, 10.0),
        priced(make, "middle", 30.0, 5.0),
        priced(make, "cheap", 40.0, 1.0),
    )
    front = trace_named(pareto_figure(board), "Pareto front")
    assert list(zip(front["x"], front["y"], strict=True)) == [(1.0, 40.0), (5.0, 30.0), (9.0, 10.0)]
    assert front["line"]["shape"] == "hv"


def test_unranked_entries_are_not_drawn(make: Make, busy_board: View) -> None:
    rejected = make["entry"](submission_id="cheat", rank=None, status="rejected")
    busy_board["entries"].append(rejected)
    names = {trace["name"] for trace in pareto_figure(busy_board)["data"]}
    assert names == {"Pareto front", "measured", "claimed"}


def test_without_any_cost_the_times_stand_with_their_intervals(make: Make) -> None:
    figure = pareto_figure(make["board"](priced(make, "a", 0.85, None), priced(make, "b", 1, None)))
    whiskers = trace_named(figure, "95 % interval of the mean")
    assert whiskers["x"] == [0.79, 0.91, None, 0.79, 0.91, None]
    assert figure["layout"]["xaxis"]["title"]["text"] == "Time to accuracy (seconds)"
    low, high = figure["layout"]["xaxis"]["range"]
    assert 0 < low < 0.79 < 1 < high < 1.1  # Neither an interval nor a dot is cut off.


def test_a_small_amount_that_stands_alone_is_drawn_between_zero_and_its_double(make: Make) -> None:
    axes = pareto_figure(make["board"](priced(make, "a", 2.5, 0.00084)))["layout"]
    assert axes["xaxis"]["range"] == [0, 0.00168]
    assert "range" not in axes["yaxis"]  # One unit to each side of 2.5 is above zero.


def test_widely_different_times_are_drawn_on_a_logarithmic_axis(busy_board: View) -> None:
    axes = pareto_figure(busy_board)["layout"]
    assert axes["yaxis"]["type"] == "log"
    close = {**busy_board, "entries": busy_board["entries"][:3]}
    assert "type" not in pareto_figure(close)["layout"]["yaxis"]


def test_evidence_differs_in_shape_not_in_colour_alone(busy_board: View) -> None:
    dots = [t for t in pareto_figure(busy_board)["data"] if t["mode"] == "markers"]
    assert len({trace["marker"]["symbol"] for trace in dots}) == len(dots) == 2


def test_figures_carry_no_colour_of_their_own(
    busy_board: View, curves: list[View], target: View, control_points: list[View]
) -> None:
    for figure in (pareto_figure(busy_board), curves_figure(curves, target, control_points)):
        text = json.dumps(figure)
        assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert '"color"' not in text
        assert '"fillcolor"' not in text


def test_a_strangers_markup_is_text_in_a_chart(make: Make, hostile: str) -> None:
    entry = make["entry"](model=hostile, submitter=hostile, system=make["system"](name=hostile))
    for cost in (1.0, None):
        text = json.dumps(pareto_figure(make["board"]({**entry, "cost_usd": cost})))
        assert "<script" not in text
        assert "<img" not in text
        assert "&lt;script" in text


def test_curves_are_drawn_over_seconds_and_over_epochs_with_the_band(
    curves: list[View], target: View, control_points: list[View]
) -> None:
    figure = curves_figure(curves, target, control_points)
    assert [view["name"] for view in figure["layout"]["meta"]["views"]] == ["seconds", "epochs"]
    over = {view: [t for t in figure["data"] if t["meta"]["view"] == view] for view in
            ("seconds", "epochs")}  # fmt: skip
    assert [trace["name"] for trace in over["seconds"]] == ["run_0.log", "run_1.log", "run_2.log"]
    assert over["seconds"][0]["x"][:2] == pytest.approx([0.11, 0.22])
    band = [t for t in over["epochs"] if t["meta"]["paint"] == "band"]
    assert [len(trace["x"]) for trace in band] == [10, 10]
    assert band[1]["x"][-1] == pytest.approx(10.0)
    assert figure["layout"]["shapes"][0]["y0"] == 97.5


def test_the_band_lies_at_the_epochs_of_the_evaluations(target: View) -> None:
    curve = [{"epoch": 0.5 * j, "seconds": float(j), "quality": 50.0} for j in (1, 2)]
    points = [{"index": j, "mean": 50, "lower": 40, "upper": 60} for j in (1, 2, 3)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target, points)
    assert trace_named(figure, "control-point band")["x"] == [0.5, 1.0, 1.5]


def test_the_band_keeps_its_place_where_evaluations_are_left_out(target: View) -> None:
    curve = [
        {"index": j, "epoch": 0.5 * j, "seconds": float(j), "quality": 50.0} for j in (1, 5, 9)
    ]
    points = [{"index": j, "mean": 50, "lower": 40, "upper": 60} for j in (1, 2, 9, 10)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target, points)
    assert trace_named(figure, "control-point band")["x"] == [0.5, 1.0, 4.5, 5.0]


def test_logs_without_epochs_are_drawn_over_evaluations(target: View) -> None:
    curve = [{"epoch": None, "seconds": 7200.0 * j, "quality": 50.0} for j in (1, 2)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target)
    labels = [view["label"] for view in figure["layout"]["meta"]["views"]]
    assert labels == ["hours", "evaluations"]
    assert [trace["x"] for trace in figure["data"]] == [[2.0, 4.0], [1, 2]]
    thinned = [point | {"index": 7 * place} for place, point in enumerate(curve, start=1)]
    figure = curves_figure([{"file": "a.log", "curve": thinned}], target)
    assert [trace["x"] for trace in figure["data"]] == [[2.0, 4.0], [7, 14]]

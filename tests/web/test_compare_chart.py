"""The figures of a comparison: a colour and a shape for each submission."""

from typing import Any

from web.compare_chart import overlaid_curves, run_times_figure

TARGET = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}


def curve(*epochs: float | None) -> list[dict[str, Any]]:
    return [{"epoch": e, "seconds": 100.0 * i, "quality": 90.0 + i} for i, e in enumerate(epochs)]


def submission(model: str, *curves: list[dict[str, Any]]) -> dict[str, Any]:
    runs = [{"file": f"run_{i}.log", "curve": each} for i, each in enumerate(curves)]
    return {"model": model, "submitter": "alice", "curves": runs}


def test_each_submission_has_one_colour_one_shape_and_one_place_in_the_legend() -> None:
    one = submission("<b>fast</b>", curve(1.0, 2.0), curve(1.0, 2.0))
    figure = overlaid_curves([one, submission("slow", curve(1.0, 4.0))], TARGET)
    shown = [t for t in figure["data"] if t["meta"]["view"] == "seconds"]

    assert [t["meta"]["series"] for t in shown] == [0, 0, 1]
    assert [t["showlegend"] for t in shown] == [True, False, True]
    assert shown[0]["marker"]["symbol"] != shown[2]["marker"]["symbol"]
    assert shown[0]["name"] == "A &lt;b&gt;fast&lt;/b&gt;, alice"
    assert {t["type"] for t in figure["data"]} == {"scatter"}
    by_epoch = [t for t in figure["data"] if t["meta"]["view"] == "epochs"]
    assert by_epoch[-1]["x"] == [1.0, 4.0]


def test_a_log_without_epochs_is_drawn_by_evaluation() -> None:
    figure = overlaid_curves([submission("a", curve(None, None))] * 2, TARGET)
    assert [v["name"] for v in figure["layout"]["meta"]["views"]] == ["seconds", "evaluations"]
    assert figure["data"][1]["x"] == [1, 2]
    thinned = [point | {"index": 5} for point in curve(None)]
    figure = overlaid_curves([submission("a", thinned)] * 2, TARGET)
    assert figure["data"][1]["x"] == [5]


def test_run_times_stand_beside_the_interval_of_their_mean() -> None:
    one = {"model": "a", "submitter": "s", "run_seconds": [600.0, 660.0, 720.0],
           "tta_seconds": 660.0, "tta_low_seconds": 540.0, "tta_high_seconds": 780.0}  # fmt: skip
    single = one | {"run_seconds": [1200.0], "tta_low_seconds": None, "tta_high_seconds": None}
    figure = run_times_figure([one, single])

    first, second, interval = figure["data"]
    assert first["y"] == [10.0, 11.0, 12.0]
    assert first["x"] == [-0.25, 0.0, 0.25]
    assert (second["x"], second["y"]) == ([1], [20.0])
    assert interval["y"] == [9.0, 13.0]
    assert interval["showlegend"] is True
    assert figure["layout"]["xaxis"]["ticktext"] == ["A", "B"]

"""The figure of a calibration: one view for each batch size."""

from web.replay_chart import calibration_figure, largest_shift

TARGET = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}


def test_each_batch_size_is_a_view_with_its_runs_their_mean_and_their_band() -> None:
    band = [{"index": 1, "mean": 50.0, "lower": 40.0, "upper": 60.0}]
    sizes = [{"batch_size": 32, "band": band}, {"batch_size": 64, "band": []}]
    runs = [{"batch_size": 32, "quality": [49.0, 97.6]}, {"batch_size": 64, "quality": [45.0]}]
    figure = calibration_figure(sizes, runs, TARGET)

    names = [(t["name"], t["meta"]["view"]) for t in figure["data"]]
    assert names == [
        ("lower limit", "batch size 32"),
        ("control-point band", "batch size 32"),
        ("a run", "batch size 32"),
        ("mean", "batch size 32"),
        ("a run", "batch size 64"),
    ]
    assert figure["data"][2]["x"] == [1, 2]
    views = figure["layout"]["meta"]["views"]
    assert [view["name"] for view in views] == ["batch size 32", "batch size 64"]


def test_the_largest_shift_of_a_band_keeps_its_sign() -> None:
    shifts = [{"mean_difference": value} for value in (0.5, -2.0, 1.0)]
    assert largest_shift(shifts) == -2.0
    assert largest_shift([]) is None

from typing import Any

import pytest

from finishline.cli.replay_screen import (
    Band,
    ReplayProgress,
    Target,
    line_of,
    read_bands,
    read_target,
)
from finishline.cli.tables import quality_text

DIGITS = Target(metric="top1Accuracy", value=97.5, unit="percent", direction="higher")


def evaluation(run: int, quality: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "run": run,
        "quality": quality,
        "epoch": 1.0,
        "seconds": 0.5,
    } | more


def test_each_evaluation_is_held_against_the_band_of_its_number() -> None:
    bands = read_bands(
        [
            {"index": 1, "mean": 15.0, "lower": 10.0, "upper": 20.0},
            {"index": 2, "mean": 45.0, "lower": 40.0, "upper": 50.0},
        ]
    )
    progress = ReplayProgress(DIGITS, bands=bands)
    places = [
        progress.take_event(evaluation(0, 20.0)).place,
        progress.take_event(evaluation(0, 39.9)).place,
        progress.take_event(evaluation(0, 99.0)).place,
        progress.take_event(evaluation(1, 20.1)).place,
    ]
    assert places == ["inside", "below", None, "above"]


@pytest.mark.parametrize(
    ("quality", "target", "unit", "shown"),
    [
        (58400 / 599, 97.5, "percent", "97.496 %"),  # 584 of 599, where 585 reach it
        (58500 / 599, 97.5, "percent", "97.66 %"),
        (97.5, 97.5, "percent", "97.50 %"),
        (0.74998, 0.75, "fraction", "0.74998"),
        (97.4999999, 97.5, "percent", "97.500000 %"),
        (97.496, None, "percent", "97.50 %"),
    ],
)
def test_a_quality_just_short_of_its_target_does_not_read_as_the_target(
    quality: float, target: float | None, unit: str, shown: str
) -> None:
    assert quality_text(quality, unit, target=target) == shown


def test_the_line_of_a_run_just_short_of_its_target_says_so() -> None:
    progress = ReplayProgress(DIGITS)
    run = progress.take_event(evaluation(0, 58400 / 599))
    assert "97.496 %" in line_of(run, progress).plain


def test_band_edges_are_inside() -> None:
    assert Band(10.0, 20.0).place_of(10.0) == Band(10.0, 20.0).place_of(20.0) == "inside"


def test_a_second_attempt_starts_all_over() -> None:
    progress = ReplayProgress(DIGITS)
    progress.take_event({"attempt": 1} | evaluation(0, 50.0))
    progress.take_event({"attempt": 1} | evaluation(1, 60.0))
    progress.take_event({"attempt": 2} | evaluation(0, 12.0))
    assert [(run.index, run.quality) for run in progress.runs.values()] == [(0, 12.0)]


@pytest.mark.parametrize(
    ("target", "quality", "way"),
    [
        (DIGITS, 97.5, 1.0),
        (DIGITS, 48.75, 0.5),
        (DIGITS, 99.0, 1.0),
        (DIGITS, None, 0.0),
        (Target("loss", 0.8, "nats/byte", "lower"), 1.6, 0.5),
        (Target("loss", 0.8, "nats/byte", "lower"), 0.7, 1.0),
    ],
)
def test_way_to_the_target(target: Target, quality: float | None, way: float) -> None:
    assert target.fraction_of_way(quality) == pytest.approx(way)


def test_a_line_tells_epoch_quality_seconds_place_and_end() -> None:
    progress = ReplayProgress(DIGITS, bands={1: Band(10.0, 20.0)})
    run = progress.take_event(evaluation(0, 14.8, epoch=1.0, seconds=0.1234))
    assert line_of(run, progress).plain.split() == [
        "epoch", "1", "14.80", "%", "0.123", "s", "inside", "10.00..20.00",
    ]  # fmt: skip
    ended = progress.take_event({"kind": "run_finished", "run": 0, "status": "below_band"})
    assert line_of(ended, progress).plain.endswith("  below band")


def test_target_is_read_from_a_view() -> None:
    view = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}
    assert read_target(view) == DIGITS

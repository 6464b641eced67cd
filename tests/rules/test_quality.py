"""Targets in one metric, in several, and in single precision."""

from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.archive.definitions import shipped_file
from finishline.rules.benchmarks.benchmark import parse_benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import BenchmarkError
from finishline.rules.scoring.run import Evaluation

MASK = QualityTarget("mask AP", 0.339, "fraction", "higher", logged_as="SEGM")
MASKRCNN = QualityTarget("box AP", 0.377, "fraction", "higher", logged_as="BBOX", also=(MASK,))


def evaluation(quality: float, **others: float) -> Evaluation:
    return Evaluation(epoch=1.0, seconds=1.0, quality=quality, others=others)


@pytest.mark.parametrize(
    ("box", "mask", "reached"),
    [(0.377, 0.339, True), (0.376, 0.4, False), (0.4, 0.338, False), (0.4, 0.4, True)],
)
def test_both_metrics_must_be_reached_at_one_evaluation(
    box: float, mask: float, reached: bool
) -> None:
    """Source: training_rules.adoc of v0.5, "0.377 Box min AP and 0.339 Mask min AP"."""
    assert MASKRCNN.is_reached_at(evaluation(box, SEGM=mask)) is reached


def test_a_metric_that_was_not_measured_is_not_reached() -> None:
    assert not MASKRCNN.is_reached_at(evaluation(0.4))
    assert not MASKRCNN.is_reached_at(Evaluation(1.0, 1.0, 0.4))
    three = replace(MASKRCNN, also=(MASK, replace(MASK, logged_as="KEYPOINTS")))
    assert not three.is_reached_at(evaluation(0.4, SEGM=0.4, KEYPOINTS=0.3))
    assert three.is_reached_at(evaluation(0.4, SEGM=0.4, KEYPOINTS=0.4))


def test_one_metric_may_fall_while_the_other_rises() -> None:
    clip = QualityTarget("CLIP score", 0.15, "score", "higher", logged_as="CLIP")
    target = QualityTarget("FID", 90.0, "score", "lower", logged_as="FID", also=(clip,))
    assert target.is_reached_at(evaluation(90.0, CLIP=0.15))
    assert not target.is_reached_at(evaluation(90.5, CLIP=0.2))
    assert target.in_words == "FID <= 90 score and CLIP score >= 0.15 score"


@pytest.mark.parametrize(
    ("value", "direction", "single"),
    [(21.8, "higher", 21.799999237060547), (0.925, "lower", 0.925000011920929)],
)
def test_in_single_precision_a_target_is_reached_by_itself(
    value: float, direction: str, single: float
) -> None:
    """Expected: numpy.float32, and the log of a published run of GNMT that stopped there."""
    exact = QualityTarget("BLEU", value, "BLEU", direction)  # type: ignore[arg-type]
    target = replace(exact, single_precision=True)
    assert target.is_reached(single)
    assert target.is_reached(value)
    assert not exact.is_reached(single)
    step = -2e-6 if direction == "higher" else 1e-7
    assert not target.is_reached(single + step)


@pytest.mark.parametrize(
    ("direction", "floor", "quality", "beyond"),
    [
        ("lower", 0.54, 0.5399, True),
        ("lower", 0.54, 0.54, False),
        ("lower", 0.54, 0.6, False),
        ("higher", 100.0, 100.1, True),
        ("higher", 100.0, 100.0, False),
        ("lower", None, 0.0, False),
    ],
)
def test_no_quality_is_beyond_what_the_data_allow(
    direction: str, floor: float | None, quality: float, beyond: bool
) -> None:
    target = QualityTarget("q", 0.8, "loss", direction, floor=floor)  # type: ignore[arg-type]
    assert target.is_beyond_floor(quality) is beyond


def changed(old: str, new: str) -> bytes:
    text = shipped_file("mlperf-v0.5-maskrcnn").read_text()
    assert old in text
    return text.replace(old, new).encode()


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('logged_as = "SEGM"', 'logged_as = "bbox"', "target.also"),
        ('logged_as = "SEGM"\n', "", "target.also[0].logged_as"),
        ('logged_as = "BBOX"\n', "", "target.logged_as"),
        ('metric = "mask AP"', 'metric = "mask AP"\nreach = "sustained"', "target.also[0].reach"),
    ],
)
def test_a_definition_names_each_metric_as_logs_do(
    benchmarks_dir: Path, old: str, new: str, field: str
) -> None:
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(changed(old, new), file="mlperf-v0.5-maskrcnn.toml")
    assert caught.value.field == field


def test_only_a_target_of_several_metrics_is_measured_afterwards() -> None:
    text = shipped_file("mlperf-v0.5-ssd").read_text()
    content = text.replace('reach = "first', 'offline = true\nreach = "first').encode()
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(content, file="mlperf-v0.5-ssd.toml")
    assert caught.value.field == "target.offline"

"""Figures that no training has are refused at the door; what an archive published is kept."""

import json
from collections.abc import Callable

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.scoring.run import Evaluation, Run
from finishline.rules.scoring.scoring import RunScore, score_run
from finishline.rules.submissions.claim_checks import check_figures, check_times
from finishline.rules.submissions.submission import score_submission

ENTRY = {
    "version": "v1.0",
    "author": "Ada",
    "authorEmail": "ada@example.org",
    "framework": "torch",
    "model": "small net",
    "hardware": "1 T4",
    "timestamp": "2026-11-20",
}


def found_in(
    benchmark: Benchmark,
    quality: float = 98.0,
    *,
    epoch: float | None = 1.0,
    seconds: float = 10.0,
) -> list[tuple[str, int | None]]:
    run = Run("run_0.log", "mlperf", (Evaluation(epoch, seconds, quality, line=17),))
    score = score_run(run, benchmark, division="closed", clock=benchmark.clock)
    found = [*check_figures(run, benchmark), *check_times([run], [score], benchmark)]
    return [(violation.code, violation.line) for violation in found]


@pytest.mark.parametrize("quality", [-0.1, 100.1, 1e308])
def test_a_percentage_lies_between_0_and_100(digits: Benchmark, quality: float) -> None:
    assert found_in(digits, quality) == [("impossible_quality", 17)]
    assert found_in(digits, 100.0) == found_in(digits, 0.0) == []


@pytest.mark.parametrize("quality", [1e308, -1e308, 5e-324])
def test_a_quality_without_bounds_is_a_number_that_can_be_measured(
    make_benchmark: Callable[..., Benchmark], quality: float
) -> None:
    loss = make_benchmark(target=QualityTarget("loss", 0.2, "nats/byte", "lower"))

    assert found_in(loss, quality) == [("impossible_quality", 17)]
    assert found_in(loss, 0.6) == found_in(loss, 0.0) == found_in(loss, -40.0) == []


def test_every_metric_of_a_target_is_held_to_its_unit(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    mask = QualityTarget("mask AP", 0.339, "fraction", "higher", logged_as="SEGM")
    box = QualityTarget("box AP", 0.377, "fraction", "higher", logged_as="BBOX", also=(mask,))
    logged = (
        Evaluation(1.0, 5.0, 0.5, others=None, line=16),
        Evaluation(2.0, 10.0, 0.5, others={"SEGM": 1.1}, line=17),
    )

    (found,) = check_figures(Run("run_0.log", "mlperf", logged), make_benchmark(target=box))

    assert (found.message, found.line, found.field) == ("mask AP 1.1", 17, "mask AP")
    assert found.expected == "a fraction from 0 to 1"


def test_what_was_expected_is_said_in_the_words_of_the_log(
    digits: Benchmark, make_benchmark: Callable[..., Benchmark]
) -> None:
    loss = make_benchmark(target=QualityTarget("loss", 0.2, "nats/byte", "lower"))

    for clock, names in (("dawnbench", ("epoch", "hours")), ("mlperf", ("epoch_num", "time_ms"))):
        run = Run("run_0.log", clock, (Evaluation(1e300, 0.0, 1e308, line=17),))
        quality, epoch = check_figures(run, loss)
        (time,) = check_times([run], [RunScore("run_0.log", 1, True, 0.0, 1.0, 1.0, None)], digits)

        assert quality.expected == "0, or 1e-12 to 1e+06 with either sign"
        assert (epoch.field, time.field) == names


@pytest.mark.parametrize("epoch", [1e-300, 1e300])
def test_epochs_are_counted(digits: Benchmark, epoch: float) -> None:
    assert found_in(digits, epoch=epoch) == [("impossible_epoch", 17)]
    for possible in (None, 0.0, 1e-6, 1e9):
        assert found_in(digits, epoch=possible) == []


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 0.0009])
def test_no_training_is_at_its_target_within_a_millisecond(
    digits: Benchmark, seconds: float
) -> None:
    assert found_in(digits, seconds=seconds) == [("impossible_time", 17)]
    assert found_in(digits, seconds=0.001) == []
    assert found_in(digits, 20.0, seconds=seconds) == []  # Evaluated before it was trained.


@pytest.mark.parametrize("row", [f"1\t{0.0}\t95.0", f"1\t{5e-324}\t95.0"])
def test_a_submission_without_a_time_is_refused_and_an_archive_is_kept(
    cifar10: Benchmark, row: str
) -> None:
    entry, logs = json.dumps(ENTRY).encode(), {"e.tsv": f"epoch\thours\ttop1Accuracy\n{row}\n"}
    told = {"benchmarks": {"cifar10": cifar10}, "benchmark_id": "cifar10"}
    sent = {name: text.encode() for name, text in logs.items()}

    with pytest.raises(RuleError) as caught:
        score_submission(entry, sent, **told)  # type: ignore[arg-type]
    kept = score_submission(entry, sent, **told, archive=True)  # type: ignore[arg-type]

    [problem] = caught.value.problems
    assert (problem.file, problem.line, problem.field) == ("e.tsv", 2, "hours")
    assert kept.result.eligible


@pytest.mark.parametrize(
    ("field", "value"), [("latency", 0), ("latency", 5e-324), ("latency", 1e308), ("cost", 1e308),
                         ("cost", 5e-324), ("costPerHour", 1e308)]
)  # fmt: skip
def test_an_entry_states_figures_that_can_be_reckoned_with(
    cifar10: Benchmark, field: str, value: float
) -> None:
    stated = ENTRY | {"latency": 2.5, "top1Accuracy": 94.2, "cost": 0} | {field: value}
    told = {"benchmarks": {"cifar10": cifar10}, "benchmark_id": "cifar10"}

    with pytest.raises(RuleError) as caught:
        score_submission(json.dumps(stated).encode(), {}, **told)  # type: ignore[arg-type]

    assert [problem.field for problem in caught.value.problems] == [field]

"""Claimed curves against six made-up calibrated ones; the limits are those of scipy and numpy."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats

from rules.benchmark import Benchmark, QualityTarget, ReachRule, ReferenceRun
from rules.claim import Claim, System
from rules.judge_curves import judge_curves, qualities_by_epoch, shortfall
from rules.messages import ReplayEvaluation, ReplayReport, ReplayRun, WorkerSystem
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.verdict import Reason

SHAPE = [60.0, 80.0, 88.0, 92.0, 95.0, 96.5, 97.2, 97.8]
KNOWN = np.array(SHAPE) + np.random.default_rng(7).normal(0.0, 0.2, (6, 8))
HONEST = [*(q + 0.03 for q in SHAPE), 98.0, 98.1]  # Longer than any calibrated curve.
HIGHER = QualityTarget("top1Accuracy", 97.5, "percent", "higher")
LOWER = QualityTarget("error", 2.5, "percent", "lower")
FIRST = ReachRule("first_crossing")
ALPHA = 0.01


def benchmark_of(digits: Benchmark, *, known: int = 6, **target: Any) -> Benchmark:
    """Digits with some of the calibrated curves, turned where less is better."""
    replaced = dataclasses.replace(HIGHER, **target)
    turned = KNOWN if replaced.direction == "higher" else 100.0 - KNOWN
    runs = tuple(ReferenceRun(64, i, tuple(curve)) for i, curve in enumerate(turned[:known]))
    return dataclasses.replace(digits, target=replaced, reference_runs=runs)


def evaluations(qualities: Sequence[float | None]) -> list[Evaluation]:
    """One after each epoch; None stands for one that is missing."""
    return [Evaluation(float(j), 0.1 * j, q) for j, q in enumerate(qualities, 1) if q is not None]


def judged(
    benchmark: Benchmark,
    curves: Sequence[Sequence[float | None]],
    *,
    replays: Sequence[Sequence[float]] = (),
    hyperparameters: dict[str, float] | None = None,
    off: float = 0.0,
    right: int | None = None,
) -> list[Reason]:
    """The reasons told of some curves, whose epochs the logs tell `off` by so much, but one."""
    if benchmark.target.direction == "lower":
        curves = [[None if q is None else 100.0 - q for q in curve] for curve in curves]
    laptop = System("laptop", "cpu-x86_64", "any")
    claim = Claim("digits", "closed", "m", "f", laptop, ("run_0.log",), hyperparameters or {})
    scores = [RunScore(f"run_{i}.log", i, True, 0.8, 8.0, 98.0, 0.1) for i in range(len(curves))]
    runs = []
    for i, curve in enumerate(replays):
        told = [ReplayEvaluation(float(j), 0, 0.1 * j, q, {}) for j, q in enumerate(curve, 1)]
        runs.append(ReplayRun(i, i, "reached", told, {}, tta_seconds=0.1 * len(curve)))
    system = WorkerSystem("w", "cpu-x86_64", "any", 2, 24.0, None, 0, 1, {})
    assert benchmark.replay is not None
    told_curves = [
        [
            each
            if right is not None and j == right % len(curve)
            else dataclasses.replace(each, epoch=(each.epoch or 0.0) + off)
            for j, each in enumerate(evaluations(curve))
        ]
        for curve in curves
    ]
    report = ReplayReport(runs, system)
    return judge_curves(benchmark, claim, scores, told_curves, report, benchmark.replay)


def of(code: str, reasons: Sequence[Reason]) -> list[Reason]:
    return [reason for reason in reasons if reason.code == code]


def one_sided(share: float, figures: int, stdev: float, *, count: int = 6) -> float:
    """Student's prediction bound (Bonferroni): t(1 - a / M, n - 1) s sqrt(1 + 1 / n)."""
    quantile = scipy.stats.t.ppf(1 - ALPHA * share / figures, count - 1)
    return float(quantile * stdev * math.sqrt(1 + 1 / count))


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("resolution", [None, 4.8])
def test_the_first_point_above_the_band_is_told(
    digits: Benchmark, direction: str, resolution: float | None
) -> None:
    """Three curves are judged at the eight epochs that are calibrated: M = 24, share 0.03."""
    value = 97.5 if direction == "higher" else 2.5
    benchmark = benchmark_of(digits, direction=direction, value=value, resolution=resolution)
    high = [HONEST[0], None, HONEST[2] + 5.0, HONEST[3] + 5.0, *HONEST[4:]]
    third = KNOWN[:, 2]
    half = resolution or one_sided(0.03, 24, third.std(ddof=1))
    limit = third.mean() + half

    (reason,) = of("claim_above_band", judged(benchmark, [HONEST, high, HONEST]))

    assert reason.weight == "leaves_open"
    assert reason.message.startswith("run_1.log")
    assert reason.numbers["epoch"] == 3.0
    assert reason.numbers["limit"] == pytest.approx(limit if direction == "higher" else 100 - limit)


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("resolution", [None, 2.0])
def test_the_first_step_beyond_the_references_is_told(
    digits: Benchmark, direction: str, resolution: float | None
) -> None:
    """Seven steps of each of three curves: M = 21, share 0.01; two resolutions at least."""
    value = 97.5 if direction == "higher" else 2.5
    benchmark = benchmark_of(digits, direction=direction, value=value, resolution=resolution)
    leaps = [60.0, None, 60.0, 60.0, 99.0, 50.0, 99.5, 99.6]
    steps = np.diff(KNOWN, axis=1)[:, 3]
    half = 2 * resolution if resolution else one_sided(0.01, 21, steps.std(ddof=1))

    (reason,) = of("claim_curve_jumps", judged(benchmark, [HONEST, leaps, HONEST]))

    assert reason.message.startswith("run_1.log")
    assert reason.numbers["epoch"] == 5.0
    assert reason.numbers["step"] == pytest.approx(39.0)
    assert reason.numbers["limit"] == pytest.approx(steps.mean() + half)


def test_a_straggler_that_catches_up_to_the_mean_does_not_jump(digits: Benchmark) -> None:
    slow = [60.0, 60.0, 60.0, 60.0, 94.0, 96.0, 97.0, 97.6]

    assert of("claim_curve_jumps", judged(benchmark_of(digits), [slow])) == []


@pytest.mark.parametrize(
    ("known", "hyperparameters", "told"),
    [(5, {}, True), (4, {}, False), (6, {"momentum": 0.5}, False)],
)
def test_curves_are_held_against_five_of_the_same_settings(
    digits: Benchmark, known: int, hyperparameters: dict[str, float], told: bool
) -> None:
    benchmark = benchmark_of(digits, known=known)
    high = [q + 20.0 for q in SHAPE[:2]]

    found = judged(benchmark, [high], hyperparameters=hyperparameters)

    assert bool(of("claim_above_band", found)) is told


def test_a_claim_without_whole_epochs_has_no_curve_to_hold_against_the_band(
    digits: Benchmark,
) -> None:
    assert judged(benchmark_of(digits), [[]]) == []


LUCKY = [60.0, 80.0, 85.0, 97.6]  # From 12.5 below the target.


@pytest.mark.parametrize("resolution", [None, 0.5])
def test_a_crossing_from_further_below_than_any_replays_is_noise(
    digits: Benchmark, resolution: float | None
) -> None:
    """Five replays are the reference where nothing is calibrated: M = 2 x 2 curves, share 0.02."""
    benchmark = dataclasses.replace(benchmark_of(digits, resolution=resolution), reference_runs=())
    before = [97.0, 96.8, 97.2, 96.9, 97.1]
    replays = [[60.0, 80.0, quality, 97.7] for quality in before]
    first_at_target = [98.0]  # Nothing comes before: it tells nothing.
    shortfalls = [97.5 - quality for quality in before]
    spread = resolution or np.std(shortfalls, ddof=1)
    limit = np.mean(shortfalls) + one_sided(0.02, 4, float(spread), count=5)

    found = judged(benchmark, [LUCKY, HONEST], replays=[*replays, first_at_target])
    fewer = judged(benchmark, [LUCKY, HONEST], replays=replays[1:])

    (reason,) = found
    assert reason.code == "crossing_is_noise"
    assert "12.50 from it just before" in reason.message
    assert reason.numbers == {"shortfall": 12.5, "limit": pytest.approx(limit)}
    assert fewer == []


@pytest.mark.parametrize(
    ("qualities", "target", "evaluations_in_a_row", "before", "after"),
    [
        # One of 96.5 comes before; the worst of the three after it is 96, not the fourth.
        ([90.0, 96.5, 98.0, 97.0, 99.0, 96.0, 90.0], HIGHER, 1, 1.0, 1.5),
        ([10.0, 3.5, 2.0, 3.0, 1.0, 4.0, 10.0], LOWER, 1, 1.0, 1.5),
        ([90.0, 96.5, 98.0, 98.5, 97.0, 99.0], HIGHER, 2, 1.0, 0.5),
        ([98.0, 99.0], HIGHER, 1, None, -1.5),
        ([96.5, 98.0], HIGHER, 1, 1.0, None),
        ([90.0, 96.5], HIGHER, 1, None, None),
        ([], HIGHER, 1, None, None),
    ],
)
def test_a_shortfall_is_what_was_missing_next_to_the_crossing(
    qualities: list[float],
    target: QualityTarget,
    evaluations_in_a_row: int,
    before: float | None,
    after: float | None,
) -> None:
    reach = FIRST if evaluations_in_a_row == 1 else ReachRule("sustained", evaluations_in_a_row)
    curve = evaluations(qualities)

    assert shortfall(curve, target, reach, ahead=False) == before
    assert shortfall(curve, target, reach, ahead=True) == after


@pytest.mark.parametrize(("interval", "before"), [(0.5, 4.0), (1.0, 4.0), (2.0, 1.5), (5.0, 0.0)])
def test_who_evaluates_less_often_is_held_to_what_an_epoch_brings(
    interval: float, before: float
) -> None:
    """From 93.5 to 98.5 it is 5 points, of which an epoch of two brings half, one of five 1."""
    curve = [Evaluation(10.0, 1.0, 93.5), Evaluation(10.0 + interval, 2.0, 98.5)]

    assert shortfall(curve, HIGHER, FIRST, ahead=False) == pytest.approx(before)


@pytest.mark.parametrize("off", [0.0, 0.001, -0.5])
def test_epochs_that_are_told_a_little_off_keep_no_curve_from_being_judged(
    digits: Benchmark, off: float
) -> None:
    copied, jumping = KNOWN[0].tolist(), [*[10.0] * 5, 97.4, 97.4, 98.0]

    reasons = judged(benchmark_of(digits), [copied, jumping], off=off)

    (copy,) = of("curve_copied", reasons)
    assert copy.message.startswith("run_0.log stays within 0 of calibrated run 1,")
    assert [r.message.split()[0] for r in of("claim_curve_jumps", reasons)] == ["run_1.log"]


@pytest.mark.parametrize("right", [0, -1])
def test_one_evaluation_at_a_whole_epoch_hides_no_copy(digits: Benchmark, right: int) -> None:
    reasons = judged(benchmark_of(digits), [KNOWN[0].tolist()], off=0.4, right=right)

    assert [r.message.split()[0] for r in of("curve_copied", reasons)] == ["run_0.log"]


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        ([0.5, 1.0, 1.5, 2.0], [91.0, 93.0]),  # the middle of an epoch is left out
        ([1.0, 3.0, 3.0, 4.0], [90.0, None, 92.0, 93.0]),  # the last of an epoch counts
        ([None, 1.0, None, 2.0], [91.0, 93.0]),
        ([0.5, 1.5, 2.5, 3.5], [90.5, 91.5, 92.5]),  # on the line between two
        ([1.25, 2.25], [None, 90.75]),
        ([1.0, 2.6], [90.0, None]),  # longer than a log that tells each epoch has it
        ([], []),
        ([999.0, 1000.0, 1001.0, 5000.0], [*[None] * 998, 90.0, 91.0]),
    ],
)
def test_a_curve_is_told_by_whole_epochs(
    epochs: list[float | None], found: list[float | None]
) -> None:
    curve = [Evaluation(epoch, 1.0 * j, 90.0 + j) for j, epoch in enumerate(epochs)]

    assert qualities_by_epoch(curve) == found

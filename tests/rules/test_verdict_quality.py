"""How good the verdicts are, measured: honest claims rejected, cheats caught.

The promise: an honest claim is rejected with a probability of at most alpha, 1 %. Figures of the
reference come from the shipped digits runs; seeds are fixed, so a failure is a change of a rule.
"""

import dataclasses
import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, ReferenceRun
from finishline.rules.scoring.aggregate import olympic_mean, olympic_weight
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.significance import lowest_mean, reference_of
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)

EPOCHS_MEAN, EPOCHS_STDEV = 7.6, 0.5  # the digits reference at batch size 64


def rejected_share(
    *, alpha: float, trials: int, seed: int, claimed_runs: int = 3, speed: float = 1.0
) -> float:
    """How often the convergence test rejects claims of `speed` times the reference's epochs."""
    random = np.random.default_rng(seed)
    reference = random.normal(EPOCHS_MEAN, EPOCHS_STDEV, (trials, 43))
    claims = random.normal(EPOCHS_MEAN * speed, EPOCHS_STDEV, (trials, claimed_runs))
    tests = (
        lowest_mean(claim, reference_of(values), weight=claimed_runs, alpha=alpha)
        for claim, values in zip(claims.mean(axis=1), reference.tolist(), strict=True)
    )
    return sum(test.is_too_low for test in tests) / trials


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_convergence_test_rejects_honest_claims_at_its_nominal_rate(alpha: float) -> None:
    trials = 6000

    share = rejected_share(alpha=alpha, trials=trials, seed=11)

    assert share == pytest.approx(alpha, abs=4 * np.sqrt(alpha * (1 - alpha) / trials))


def test_forty_percent_fewer_epochs_are_nearly_always_caught() -> None:
    assert rejected_share(alpha=0.0025, trials=2000, seed=12, speed=0.6) > 0.999
    assert rejected_share(alpha=0.0025, trials=2000, seed=13, speed=0.6, claimed_runs=1) > 0.98


def test_ten_percent_too_fast_is_caught_in_ten_runs_at_a_variation_of_five_percent() -> None:
    """The figure the rules promise: at least 95 %; two of the ten runs are dropped."""
    random = np.random.default_rng(14)
    caught = 0
    for _ in range(2000):
        reference = reference_of(random.normal(20.0, 1.0, 40).tolist())
        claim = olympic_mean(random.normal(18.0, 0.9, 10).tolist(), dropped=1)
        assert claim is not None
        weight = olympic_weight(10, dropped=1)
        caught += lowest_mean(claim, reference, weight=weight, alpha=0.0025, quantum=1.0).is_too_low

    assert caught / 2000 >= 0.95


def epochs_of(curve: Sequence[float], *, target: float) -> int:
    return next(j for j, quality in enumerate(curve, 1) if quality >= target)


def outcome_of(
    benchmark: Benchmark,
    claimed: Sequence[ReferenceRun],
    replayed: Sequence[ReferenceRun],
    *,
    speed: float,
) -> str:
    """The verdict on a claim made of real runs, with `speed` times their epochs and seconds."""
    target = benchmark.target.value
    runs = []
    for index, run in enumerate(claimed):
        epochs = epochs_of(run.quality, target=target) * speed
        runs.append(RunScore(f"{index}.log", run.seed, True, epochs * 0.11, epochs, 98.0, 0.11))
    replays = []
    for index, run in enumerate(replayed):
        stop = epochs_of(run.quality, target=target)
        evaluations = [
            ReplayEvaluation(j, j * 1152, j * 0.11, quality, {})
            for j, quality in enumerate(run.quality[:stop], 1)
        ]
        replays.append(
            ReplayRun(index, run.seed, "reached", evaluations, {}, tta_seconds=stop * 0.11)
        )
    batch_size = float(claimed[0].batch_size)
    claim = Claim(
        "digits", "closed", "m", "f", System("s", "cpu", "p"), ("a",), {"batch_size": batch_size}
    )
    system = WorkerSystem("w", "cpu", "p", 2, 24.0, None, 0, 1, {})
    return judge(benchmark, claim, runs, ReplayReport(replays, system)).outcome


@pytest.mark.parametrize("batch_size", [32, 64, 128])
def test_claims_made_of_real_runs_are_judged_as_promised(
    digits: Benchmark, batch_size: int
) -> None:
    """Claim, replays and reference are drawn without overlap from the shipped runs.

    At batch size 128 one run in forty needs 13 epochs and leaves any band at epoch 7: such a
    straggler among the replays must not reject a claim.
    """
    random = np.random.default_rng(15)
    known = digits.reference_runs_at(batch_size)
    trials = 150
    outcomes = {0.6: [""] * trials, 1.0: [""] * trials}
    for trial in range(trials):
        drawn = [known[i] for i in random.permutation(len(known))]
        held_out = dataclasses.replace(digits, reference_runs=tuple(drawn[7:]))
        for speed in outcomes:
            outcomes[speed][trial] = outcome_of(held_out, drawn[:3], drawn[3:7], speed=speed)

    assert outcomes[1.0].count("rejected") / trials <= 0.02
    assert outcomes[1.0].count("verified") / trials >= 0.95
    # Whole epochs are compared here: at batch size 128 they scatter most.
    assert outcomes[0.6].count("rejected") / trials >= (0.85 if batch_size == 128 else 0.95)


@pytest.fixture(scope="module")
def simulation() -> Any:
    """perf/verdict_power.py, whose ten thousand verifications these are some hundreds of."""
    return importlib.import_module("perf.verdict_power")


@pytest.mark.parametrize("runs", [3, 10])
def test_honest_claims_are_spared_on_slow_and_fast_workers(simulation: Any, runs: int) -> None:
    """The bars: at most 0.1 % rejected, at most 1 % not measured; within chance of 400."""
    honest = simulation.simulate(simulation.Strategy("honest", runs), trials=400)

    assert honest.counts["rejected"] <= 2
    assert honest.share("inconclusive") <= 0.01 + 4 * math.sqrt(0.01 / 400)


@pytest.mark.parametrize(
    "strategy", [{"pace": 0.08}, {"started": 20}, {"forged": 1, "speed": 0.5}, {"again": 0.14}]
)
def test_no_claim_gains_in_the_ranked_time(simulation: Any, strategy: dict[str, Any]) -> None:
    honest = simulation.simulate(simulation.Strategy("honest"), trials=200)
    cheat = simulation.simulate(simulation.Strategy("cheat", **strategy), trials=200)

    assert cheat.ranked
    assert simulation.ratio(honest, cheat) == pytest.approx(1.0, abs=0.01)


def test_a_log_with_other_curves_than_its_seeds_gets_no_number(simulation: Any) -> None:
    forged = simulation.Strategy("forged", forged=3, speed=0.9)

    assert simulation.simulate(forged, trials=50).ranked == []


def test_luck_gains_nothing_after_fresh_runs(simulation: Any) -> None:
    rows = list(simulation.gains(4000))

    assert simulation.show_luck(rows, lambda line: None)
    best = {row.name.split(" equal")[0]: row.first_three for row in rows[3:]}
    assert best == {
        "the best of 2": pytest.approx(1.02, abs=0.007),
        "the best of 5": pytest.approx(1.03, abs=0.007),
        "the best of 20": pytest.approx(1.05, abs=0.007),
    }


def test_at_a_fixed_stop_honest_claims_are_spared_and_ones_too_good_are_caught(
    simulation: Any,
) -> None:
    honest = simulation.stops.simulate(trials=100)
    too_good = simulation.stops.simulate(trials=40, better=4.0)

    assert honest == {"verified": 100}
    assert too_good["rejected"] >= 38

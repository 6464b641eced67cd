"""How good the verdicts are, measured: honest claims rejected, cheats caught.

The promise: an honest claim is rejected with a probability of at most alpha, 1 %. Figures of the
reference come from the shipped digits runs; seeds are fixed, so a failure is a change of a rule.
"""

import dataclasses
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rules.aggregate import olympic_mean, olympic_weight
from rules.benchmark import Benchmark, ReferenceRun
from rules.claim import Claim, System
from rules.messages import ReplayEvaluation, ReplayReport, ReplayRun, WorkerSystem
from rules.scoring import RunScore
from rules.significance import lowest_mean, reference_of
from rules.verification import judge

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
    assert outcomes[0.6].count("rejected") / trials >= 0.95


@pytest.fixture(scope="module")
def simulation() -> Any:
    """perf/verdict_power.py, whose ten thousand verifications these are some hundreds of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "perf")
        yield importlib.import_module("verdict_power")


@pytest.mark.parametrize("runs", [3, 10])
def test_all_tests_together_spare_honest_claims(simulation: Any, runs: int) -> None:
    """The bar: at most 1 % rejected. Left open counts against alpha too, within chance."""
    trials = 600
    honest = simulation.simulate(simulation.Scenario("honest", runs), trials=trials)

    assert honest.share("rejected") <= 0.01
    assert honest.caught <= 0.01 + 4 * math.sqrt(0.01 / trials)


def test_ten_percent_too_fast_in_ten_runs_is_rejected(simulation: Any) -> None:
    """The bar: at least 95 % of claims at a variation of 5 %."""
    fast = simulation.simulate(simulation.Scenario("fast", 10, speed=0.9), trials=300)

    assert fast.share("rejected") >= 0.95


def test_a_choice_of_five_of_twenty_runs_is_mostly_seen(simulation: Any) -> None:
    """Where the evaluations do not blur which runs were fastest."""
    chosen = simulation.Scenario("best 5 of 20", 5, started=20, finely=True)

    assert simulation.simulate(chosen, trials=300).caught >= 0.7


@pytest.mark.parametrize("batch_size", [32, 64, 128])
def test_real_runs_are_no_cheats(simulation: Any, digits: Benchmark, batch_size: int) -> None:
    """Reference, claim and replays are drawn from the shipped runs without overlap."""
    honest = simulation.digits_outcomes(digits, batch_size, trials=300)

    assert honest.share("rejected") <= 0.01
    assert honest.caught <= 0.02
    assert honest.reasons["curve_copied"] == 0
    assert honest.reasons["claim_curve_jumps"] == 0


@pytest.fixture(scope="module")
def stop_simulation() -> Any:
    """perf/stop_power.py: runs that all stop at the same step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "perf")
        yield importlib.import_module("stop_power")


def test_at_a_fixed_stop_honest_claims_are_spared_and_ones_too_good_are_caught(
    stop_simulation: Any,
) -> None:
    """The bars of the rules: at most 1 % rejected; at least 95 % of a shift of 4 deviations."""
    honest, good, early = (
        next(row for row in stop_simulation.SCENARIOS if row.name == name)
        for name in ("honest", stop_simulation.TOO_GOOD, "stops after 90 % of the epochs")
    )
    spared = stop_simulation.simulate(honest, trials=150)
    assert (spared.refused, spared.share("rejected") <= 0.01) == (0, True)
    assert spared.share("verified") >= 0.95
    assert stop_simulation.simulate(good, trials=60).share("rejected") >= 0.95
    assert stop_simulation.simulate(early, trials=20).share("rejected") == 1.0


def test_at_a_fixed_stop_the_door_takes_a_mean_exactly_at_the_target_once_in_a_hundred(
    stop_simulation: Any,
) -> None:
    """The p-value of the rule: 0.01."""
    at_target = next(row for row in stop_simulation.SCENARIOS if row.margin == 0.0)
    trials = 1500
    refused = stop_simulation.simulate(at_target, trials=trials).refused / trials
    assert refused == pytest.approx(0.99, abs=4 * math.sqrt(0.01 * 0.99 / trials))

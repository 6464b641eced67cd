"""Verdicts where all runs stop at the same step: a made-up benchmark with normal losses."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist, mean, pvariance

import pytest
from scipy.stats import t as student

from finishline.rules.benchmarks.benchmark import Benchmark, ReferenceRun, load_benchmark
from finishline.rules.scoring.run import Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.job import Request, build_job
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.replay import plan_replay
from finishline.rules.verification.verdict import Verdict

EPOCHS = 10
LOSS, SPREAD = 0.74, 0.008  # at the stop, from seed to seed


def curve(rng: random.Random, *, gain: float = 0.0) -> list[float]:
    """A loss that falls from 2.36 to about LOSS at the stop, less `gain`."""
    return [
        LOSS - gain + 2 * (1 - epoch / EPOCHS) ** 2 + rng.gauss(0, SPREAD)
        for epoch in range(1, EPOCHS + 1)
    ]


@pytest.fixture(scope="module")
def stopping(benchmarks_dir: Path) -> Benchmark:
    """The grammar benchmark with 24 made-up calibrated runs of ten epochs."""
    rng = random.Random(5)
    runs = [ReferenceRun(32, 1000 + i, tuple(curve(rng))) for i in range(24)]
    benchmark = load_benchmark(benchmarks_dir / "grammar.toml")
    return dataclasses.replace(benchmark, reference_runs=tuple(runs))


def claim(division: str = "closed", **hyperparameters: float) -> Claim:
    laptop = System("laptop", "cpu-x86_64", "any")
    files = tuple(f"run_{i}.log" for i in range(5))
    return Claim(
        "grammar", division, "m", "f", laptop, files, hyperparameters, trained_with="reference"
    )


def evaluations(qualities: Sequence[float]) -> list[Evaluation]:
    return [Evaluation(float(j), 0.3 * j, quality) for j, quality in enumerate(qualities, 1)]


def replay(index: int, qualities: Sequence[float], *, status: str = "reached") -> ReplayRun:
    told = [
        ReplayEvaluation(e.epoch or 0.0, 0, e.seconds, e.quality, {})
        for e in evaluations(qualities)
    ]
    return ReplayRun(
        index=index,
        seed=index,
        status=status,  # type: ignore[arg-type]
        evaluations=told,
        ledger={},
        tta_seconds=told[-1].seconds if status == "reached" else None,
        parent_seconds=3.0,
        child_seconds=3.0,
        cpu_seconds=3.0,
    )


def verdict(
    benchmark: Benchmark,
    claimed: Sequence[Sequence[float]],
    replays: Sequence[ReplayRun],
    *,
    division: str = "closed",
    **hyperparameters: float,
) -> Verdict:
    scores = [
        RunScore(f"run_{i}.log", i, True, 0.3 * len(c), float(len(c)), min(c), 0.3)
        for i, c in enumerate(claimed)
    ]
    system = WorkerSystem("w", "cpu-x86_64", "any", 2, 24.0, None, 0, 1, {})
    return judge(
        benchmark,
        claim(division, **hyperparameters),
        scores,
        ReplayReport(list(replays), system),
        curves=[evaluations(c) for c in claimed],
    )


def honest_replays(rng: random.Random, *, runs: int = 4, gain: float = 0.0) -> list[ReplayRun]:
    return [replay(i, curve(rng, gain=gain)) for i in range(runs)]


def weights(found: Verdict) -> dict[str, str]:
    return {reason.code: reason.weight for reason in found.reasons}


def test_an_honest_claim_is_verified_by_the_mean_at_its_stop(stopping: Benchmark) -> None:
    rng = random.Random(1)
    replays = honest_replays(rng)
    found = verdict(stopping, [curve(rng) for _ in range(5)], replays)

    assert found.outcome == "verified", found.reasons
    assert list(weights(found)) == [
        "reached_target",
        "within_band",
        "convergence_agrees",
        "time_agrees",
    ]
    finals = [run.evaluations[-1].quality for run in replays]
    known = [run.quality[-1] for run in stopping.reference_runs]
    freedom = len(finals) + len(known) - 2
    squares = sum(len(group) * pvariance(group) for group in (finals, known))
    error = (squares / freedom / len(finals)) ** 0.5
    expected = student.cdf((mean(finals) - 0.80) / error, freedom)
    assert found.reasons[0].numbers["p_value"] == pytest.approx(expected)
    assert found.reasons[2].numbers["reference_mean"] == pytest.approx(LOSS, abs=0.01)


def test_honest_claims_are_hardly_ever_left_unverified(stopping: Benchmark) -> None:
    """By the rule at most alpha = 1 %; 300 claims leave room for chance (binomial, 1e-4)."""
    failed = 0
    for seed in range(300):
        rng = random.Random(seed)
        found = verdict(stopping, [curve(rng) for _ in range(5)], honest_replays(rng))
        failed += found.outcome != "verified"
    assert failed <= 10


def test_replays_whose_mean_misses_the_target_reject_a_claim(stopping: Benchmark) -> None:
    rng = random.Random(2)
    settings = {"epochs": 9.0}  # away from the calibrated settings the replays speak alone
    replays = honest_replays(rng, gain=-0.2)
    found = verdict(stopping, [curve(rng) for _ in range(5)], replays, **settings)

    assert found.outcome == "rejected"
    assert weights(found)["did_not_reach"] == "rejects"


def test_replays_that_prove_nothing_leave_a_claim_open(stopping: Benchmark) -> None:
    """Two replays on either side of the target: a mean at it, and a large p-value."""
    rng = random.Random(3)
    replays = [replay(i, curve(rng, gain=LOSS - q)) for i, q in enumerate((0.79, 0.81))]
    found = verdict(stopping, [curve(rng, gain=-0.02) for _ in range(5)], replays, epochs=9.0)

    assert weights(found)["did_not_reach"] == "leaves_open"
    assert weights(found)["convergence_agrees"] == "supports"
    assert found.outcome == "inconclusive"


def test_one_replay_makes_no_mean(stopping: Benchmark) -> None:
    rng = random.Random(4)
    found = verdict(stopping, [curve(rng) for _ in range(5)], honest_replays(rng, runs=1))
    assert weights(found)["infrastructure"] == "leaves_open"


def test_replays_that_never_came_to_their_stop_reject_a_claim(stopping: Benchmark) -> None:
    rng = random.Random(5)
    replays = [replay(i, curve(rng)[:4], status="not_reached") for i in range(3)]
    found = verdict(stopping, [curve(rng) for _ in range(5)], replays)
    assert weights(found)["did_not_reach"] == "rejects"


def test_one_replay_that_never_came_to_its_stop_is_left_out_of_the_mean(
    stopping: Benchmark,
) -> None:
    rng = random.Random(5)
    replays = [*honest_replays(rng), replay(4, curve(rng)[:4], status="not_reached")]
    found = verdict(stopping, [curve(rng) for _ in range(5)], replays)

    finals = [run.evaluations[-1].quality for run in replays[:4]]
    assert found.reasons[0].numbers["mean"] == pytest.approx(sum(finals) / 4)
    assert found.reasons[0].numbers["started"] == 5.0
    assert weights(found)["reached_target"] == "supports"


@pytest.mark.parametrize("runs", [0, 5])
def test_a_claim_that_does_not_tell_where_it_stopped_is_left_open(
    stopping: Benchmark, runs: int
) -> None:
    rng = random.Random(12)
    scores = [RunScore(f"run_{i}.log", i, True, 3.0, None, 0.7, 0.3) for i in range(runs)]
    system = WorkerSystem("w", "cpu-x86_64", "any", 2, 24.0, None, 0, 1, {})
    found = judge(stopping, claim(), scores, ReplayReport(honest_replays(rng), system))
    assert weights(found)["claim_has_no_time"] == "leaves_open"


@pytest.mark.parametrize("early_runs", [5, 1])
def test_a_claim_that_stops_before_its_replays_is_rejected(
    stopping: Benchmark, early_runs: int
) -> None:
    rng = random.Random(6)
    early = [[*curve(rng)[:7], 0.75 + rng.gauss(0, SPREAD)] for _ in range(early_runs)]
    early += [curve(rng) for _ in range(5 - early_runs)]
    found = verdict(stopping, early, honest_replays(rng))

    assert found.outcome == "rejected"
    assert weights(found)["converges_faster_than_replay"] == "rejects"
    reason = next(r for r in found.reasons if r.code == "converges_faster_than_replay")
    assert reason.numbers == {"claimed_stop_epochs": 8.0, "stop_epochs": 10.0}


@pytest.mark.parametrize(
    ("division", "outcome"), [("closed", "rejected"), ("open", "inconclusive")]
)
def test_a_better_mean_than_the_reference_can_have_is_not_believed(
    stopping: Benchmark, division: str, outcome: str
) -> None:
    rng = random.Random(7)
    better = [curve(rng, gain=0.04) for _ in range(5)]
    found = verdict(stopping, better, honest_replays(rng), division=division)

    assert found.outcome == outcome
    assert "converges_faster_than_replay" in weights(found)


def test_the_mean_is_tested_with_the_spread_of_the_reference(stopping: Benchmark) -> None:
    """The allowed difference by hand: t(0.9996, 27) s sqrt(1 / 28 + 1 / 5)."""
    rng = random.Random(8)
    replays = honest_replays(rng)
    found = verdict(stopping, [curve(rng) for _ in range(5)], replays)
    numbers = next(r for r in found.reasons if r.code == "convergence_agrees").numbers
    finals = [run.quality[-1] for run in stopping.reference_runs]
    finals += [run.evaluations[-1].quality for run in replays]
    spread = NormalDist.from_samples(finals).stdev
    assert numbers["reference_stdev"] == pytest.approx(spread)
    assert numbers["allowed_difference"] == pytest.approx(
        3.7751 * spread * (1 / 28 + 1 / 5) ** 0.5, rel=1e-4
    )


def test_a_loss_below_the_entropy_is_a_proven_cheat(stopping: Benchmark) -> None:
    rng = random.Random(10)
    cheat = [curve(rng) for _ in range(4)] + [[*curve(rng)[:9], 0.53]]
    found = verdict(stopping, cheat, honest_replays(rng), division="open")
    assert found.outcome == "rejected"
    reason = next(r for r in found.reasons if r.code == "below_entropy")
    assert reason.weight == "rejects"
    assert reason.message.startswith("run_4.log")


def test_a_replay_below_the_entropy_speaks_against_the_worker(stopping: Benchmark) -> None:
    rng = random.Random(11)
    broken = replay(3, [*curve(rng)[:9], 0.5])
    found = verdict(
        stopping, [curve(rng) for _ in range(5)], [*honest_replays(rng, runs=3), broken]
    )
    assert weights(found)["below_entropy"] == "leaves_open"
    assert found.outcome == "inconclusive"


def test_a_claim_without_curves_is_not_believed_blindly(stopping: Benchmark) -> None:
    rng = random.Random(12)
    scores = [RunScore(f"run_{i}.log", i, True, 3.0, 10.0, 0.7, 0.3) for i in range(5)]
    system = WorkerSystem("w", "cpu-x86_64", "any", 2, 24.0, None, 0, 1, {})
    found = judge(stopping, claim(), scores, ReplayReport(honest_replays(rng), system))
    assert found.outcome == "inconclusive"
    assert "claim_has_no_time" in weights(found)


def test_where_more_is_better_the_same_tests_hold(stopping: Benchmark) -> None:
    """The same curves with the sign turned: 1 - loss, to be above 0.2."""
    target = dataclasses.replace(stopping.target, direction="higher", value=0.2, floor=0.46)
    turned = tuple(
        dataclasses.replace(run, quality=tuple(1 - q for q in run.quality))
        for run in stopping.reference_runs
    )
    benchmark = dataclasses.replace(stopping, target=target, reference_runs=turned)

    def up(gain: float, rng: random.Random) -> list[float]:
        return [1 - q for q in curve(rng, gain=gain)]

    for gain, outcome in ((0.0, "verified"), (0.04, "rejected")):
        rng = random.Random(1)
        replays = [replay(i, up(0.0, rng)) for i in range(4)]
        found = verdict(benchmark, [up(gain, rng) for _ in range(5)], replays)
        assert found.outcome == outcome, found.reasons


def test_a_replay_goes_on_to_its_stop(stopping: Benchmark) -> None:
    planned = plan_replay(Request(stopping, bytes(32), claims=[claim()]))
    job = build_job(
        stopping,
        claim(),
        planned,
        attempt_id="a",
        verification_id="v",
        submission_id="s",
    )
    assert job.target.fixed_stop
    assert job.trainings[0].stop_at == "target"  # and out of the band it is stopped as any other

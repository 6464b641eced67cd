"""Simulated claims, honest and forged: the verdict on each, and the time that ranks after it.

A run saturates towards 96 % as 1 - exp(-3.87 e / tau), is evaluated after each epoch e with an
error of 0.05, and tau scatters so that the epochs to 94 % have a mean of 20 and a variation of 5 %.
The same seed on another machine gives the same curve with an error of 0.1, of 0.14 with other
software.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from finishline.rules.benchmarks.benchmark import (
    Benchmark,
    DataSet,
    QualityTarget,
    ReachRule,
    ReferenceRun,
    ReplayPolicy,
    RunsRule,
)
from finishline.rules.scoring.aggregate import olympic_mean
from finishline.rules.scoring.measured_time import measured_seconds
from finishline.rules.scoring.run import Clock, Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.verdict import Verdict

CEILING, TARGET, NOISE = 96.0, 94.0, 0.05
RATE = math.log(CEILING / (CEILING - TARGET))
EPOCHS, EPOCHS_STDEV = 20.0, 0.99  # and 0.13 from the noise: a variation of 5 %
PACE_STDEV = 0.02
REFERENCE_RUNS, SEALED, OWN = 40, 4, 2
EQUAL_SEED_LIMIT = 0.25
TRIALS_OF_A_REFERENCE = 50
SEED = 20_260
CONVERGENCE = {"converges_faster_than_replay"}
OWN_SEED = {"curve_not_reproduced", "own_seed_not_confirmed"}
SYSTEM = System("simulated", "class-a", "any")
WORKER = WorkerSystem("w", "class-a", "any", 2, 24.0, None, 0, 1, {})

Curves = NDArray[np.float64]


@dataclass(frozen=True)
class Strategy:
    """Strategy of a claim. Of `started` trainings the fastest `runs` are handed in.

    `forged` of them, all by default where `speed` is given, are rewritten to take `speed` times
    their epochs; every time is multiplied by `pace`. `again` is the error of the same seed trained
    again.
    """

    name: str
    runs: int = 3
    started: int | None = None
    forged: int = 0
    speed: float = 1.0
    pace: float = 1.0
    again: float = 0.1


@dataclass
class Outcomes:
    """Outcomes of the claims of a strategy.

    `ranked` has the measured time of each row that got a number, `claimed` the claimed epochs of
    each verified claim, both relative to the mean of an honest row of the same draw.
    """

    strategy: Strategy
    trials: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    ranked: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)

    def share(self, name: str) -> float:
        """The share of the claims with an outcome or a reason."""
        return self.counts[name] / self.trials


def simulate(strategy: Strategy, *, trials: int, seed: int = SEED) -> Outcomes:
    """The outcomes of so many verifications, with a new reference for every fifty of them.

    Our own runs are the same for each strategy, so that only the claim's effect on them differs.
    """
    ours = np.random.default_rng([seed, 1])
    theirs = np.random.default_rng([seed, 2, strategy.runs])
    found = Outcomes(strategy)
    benchmark = simulated_benchmark(train(ours, REFERENCE_RUNS), runs=strategy.runs)
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            benchmark = simulated_benchmark(train(ours, REFERENCE_RUNS), runs=strategy.runs)
        sealed, paces = train(ours, SEALED), np.exp(ours.normal(0, PACE_STDEV, SEALED))
        worker = 2.0 ** ours.uniform(-1, 1)  # Half to twice as fast as the submitter's machine.
        _judge_one(found, benchmark, theirs, sealed, paces, worker)
    return found


def train(random: np.random.Generator, runs: int, *, epochs: int = 40) -> Curves:
    """The qualities after each epoch of some trainings: (runs, epochs)."""
    tau = random.normal(EPOCHS, EPOCHS_STDEV, (runs, 1))
    exact = CEILING * (1 - np.exp(-RATE * np.arange(1, epochs + 1) / tau))
    curves: Curves = np.round(exact + random.normal(0, NOISE, exact.shape), 2)
    return curves


def _judge_one(
    found: Outcomes,
    benchmark: Benchmark,
    theirs: np.random.Generator,
    sealed: Curves,
    paces: NDArray[np.float64],
    worker: float,
) -> None:
    strategy = found.strategy
    trained = train(theirs, strategy.started or strategy.runs)
    best = sorted(range(len(trained)), key=lambda i: epochs_to_target(trained[i]))
    trained = trained[theirs.permutation(best[: strategy.runs])]
    claimed = [_forged(curve, strategy, index) for index, curve in enumerate(trained)]
    own = theirs.permutation(strategy.runs)[:OWN]
    again = trained[own] + theirs.normal(0, strategy.again, trained[own].shape)
    replays = [
        *(_replay(int(seed), curve, worker) for seed, curve in zip(own, again, strict=True)),
        *(
            _replay(1000 + index, curve, worker * pace)
            for index, (curve, pace) in enumerate(zip(sealed, paces, strict=True))
        ),
    ]
    curves = [_stopped(curve, strategy.pace) for curve in claimed]
    verdict = judged(benchmark, curves, replays, batch_size=64, own_runs=OWN)
    found.trials += 1
    found.counts[verdict.outcome] += 1
    wrong = {reason.code for reason in verdict.reasons if reason.weight not in ("supports", "note")}
    found.counts.update(wrong)
    times = [run.tta_seconds for run in replays[OWN:]]
    ranked = measured_seconds(times)
    if verdict.outcome == "verified" and ranked is not None:
        found.ranked.append(ranked / worker)
        epochs = olympic_mean([curve[-1].epoch for curve in curves], dropped=1)
        found.claimed.append(epochs or math.nan)


def judged(
    benchmark: Benchmark,
    curves: Sequence[Sequence[Evaluation]],
    replays: Sequence[ReplayRun],
    *,
    batch_size: int,
    own_runs: int = 0,
) -> Verdict:
    """The verdict on a claim of curves that end where they reached the target, and its replays."""
    scores = [
        RunScore(f"{i}.log", i, True, curve[-1].seconds, curve[-1].epoch, None, None)
        for i, curve in enumerate(curves)
    ]
    settings = {"batch_size": batch_size}
    claim = Claim(benchmark.benchmark_id, "closed", "m", "f", SYSTEM, (), settings)
    report = ReplayReport(list(replays), WORKER)
    return judge(benchmark, claim, scores, report, curves=curves, own_runs=own_runs)


def _forged(curve: Curves, strategy: Strategy, index: int) -> Curves:
    """A curve as a training would have it that needs `speed` times the epochs."""
    if index >= strategy.forged:
        return curve
    epochs = np.arange(1, len(curve) + 1)
    return np.interp(epochs, epochs * strategy.speed, curve)


def epochs_to_target(curve: Sequence[float] | Curves) -> int:
    """The first epoch at the target, or the last that there is."""
    reached = np.asarray(curve) >= TARGET
    return int(reached.argmax()) + 1 if reached.any() else len(reached)


def timed(qualities: Iterable[float], pace: float) -> list[Evaluation]:
    """Evaluations at the end of each epoch."""
    return [Evaluation(float(j), j * pace, float(q)) for j, q in enumerate(qualities, 1)]


def _stopped(curve: Curves, pace: float) -> list[Evaluation]:
    return timed(curve[: epochs_to_target(curve)], pace)


def _replay(seed: int, curve: Curves, pace: float) -> ReplayRun:
    """A replay as a worker reports it."""
    stopped = _stopped(curve, pace)
    if stopped[-1].quality < TARGET:
        return reported(seed, stopped, None)
    return reported(seed, stopped, stopped[-1].seconds)


def reported(seed: int, stopped: list[Evaluation], tta_seconds: float | None) -> ReplayRun:
    """A run as a worker reports it; without a time it has not reached its target."""
    evaluations = [ReplayEvaluation(e.epoch or 0.0, 0, e.seconds, e.quality, {}) for e in stopped]
    if tta_seconds is None:
        return ReplayRun(0, seed, "not_reached", evaluations, {})
    return ReplayRun(0, seed, "reached", evaluations, {}, tta_seconds=tta_seconds)


def simulated_benchmark(reference: Curves, *, runs: int) -> Benchmark:
    """A benchmark that is calibrated by a simulated reference."""
    return Benchmark(
        benchmark_id="simulated",
        title="Simulated",
        version="1",
        task="none",
        about="For the simulation.",
        data_set=DataSet("none", "none", None, 10_000, None),
        target=QualityTarget("top1Accuracy", TARGET, "percent", "higher", 0.01),
        reach=ReachRule("first_crossing"),
        clock=Clock("mlperf"),
        runs=RunsRule(runs, 1),
        divisions=("closed",),
        log_names=("simulated",),
        hyperparameters={},
        replay=ReplayPolicy(
            "none", SEALED, SEALED, 0.01, 0.5, 60.0, 8.0, 1, False, EQUAL_SEED_LIMIT
        ),
        reference_runs=tuple(
            ReferenceRun(64, i, tuple(curve)) for i, curve in enumerate(reference.tolist())
        ),
        sha256="0" * 64,
    )

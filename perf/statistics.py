"""Simulate how often verdicts, intervals, second halves and first places are wrong.

Trainings are drawn and handed to the rules that the server uses. Seeds are fixed.

A run saturates towards 96 % as 1 - exp(-3.87 e / tau), is evaluated after each epoch e with an
error of 0.05, and tau scatters so that the epochs to 94 % have a mean of 20 and a variation of 5 %.
At a fixed stop, runs scatter around the shipped runs of grammar: half of the variance belongs to
the run, half is new at each evaluation. Times are lognormal.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.benchmarks.definition_tables import (
    DataSet,
    ReachRule,
    ReferenceRun,
    ReplayPolicy,
    RunsRule,
)
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.run import Clock, Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE
from finishline.rules.statistics.aggregate import Spread, dropped_at_each_end, measured_seconds
from finishline.rules.statistics.gaps import interval_of, judge_halves, p_value_of_mean_beyond
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.job import Case
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    Training,
    WorkerSystem,
)
from finishline.rules.verification.replay import judge
from finishline.rules.verification.verdict import Verdict
from perf.first_places import hold_comparisons, hold_first_places
from perf.harness import CHECKOUT, Bars, run

CEILING, TARGET, NOISE = 96.0, 94.0, 0.05
RATE = math.log(CEILING / (CEILING - TARGET))
EPOCHS, EPOCHS_STDEV = 20.0, 0.99  # and 0.13 from the noise: a variation of 5 %
PACE_STDEV = 0.02
REFERENCE_RUNS, SEALED = 40, 4
TRIALS_OF_A_REFERENCE = 50
SEED = 20_260
SYSTEM = System("simulated", "class-a", "any")
WORKER = WorkerSystem("w", "class-a", "any", 2, 24.0, None, 0, 1, {})
REJECTED_BAR, NOT_MEASURED_BAR, GAIN_BAR = 0.1, 1.0, 1.005
GRAMMAR = CHECKOUT / "benchmarks" / "grammar.toml"
STOP_REFERENCE_RUNS, STOP_CLAIMED, STOP_REPLAYS, STOP_MARGIN = 20, 5, 3, 4.0
FIRST_RUNS, TRIES = 3, 20
DEGREES_OF_FREEDOM = 60.0  # Many replays of a class: its spread is known well.
COVERED_BAR = 94.0
HALF_TARGET, HALF_ITEMS, HALF_RUNS, RELABELLINGS = 96.5, 16_384, 5, 20

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Strategy:
    """Strategy of a submitter, who hands in the fastest `runs` of `started` trainings.

    `forged` of them are rewritten to take `speed` times their epochs. Every time is multiplied by
    `pace`.
    """

    name: str
    runs: int = 3
    started: int | None = None
    forged: int = 0
    speed: float = 1.0
    pace: float = 1.0


HONEST = tuple(Strategy("honest", runs) for runs in (3, 5, 10))
CHEATS = (
    Strategy("every time multiplied by 0.08", pace=0.08),
    Strategy("half the seconds per epoch", pace=0.5),
    Strategy("logs rewritten to 10 % fewer epochs", 3, forged=3, speed=0.9),
    Strategy("one log of three rewritten to half the epochs", 3, forged=1, speed=0.5),
    Strategy("two logs of ten rewritten to half the epochs", 10, forged=2, speed=0.5),
    Strategy("best 3 of 20 trainings", 3, started=20),
    Strategy("best 5 of 20 trainings", 5, started=20),
)


@dataclass
class Outcomes:
    """Verdicts on the logs of a strategy, with times relative to the submitter's pace."""

    strategy: Strategy
    trials: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    ranked: list[float] = field(default_factory=list)

    def percent(self, *names: str) -> float:
        """Percent of the claims with one of these outcomes."""
        return 100 * sum(self.counts[name] for name in names) / self.trials


def measure(bars: Bars, *, trials: int = 10_000, processes: int = 2) -> None:
    """Simulate so many of each kind."""
    with ProcessPoolExecutor(processes) as pool:
        rows = list(pool.map(partial(simulate, trials=trials), HONEST + CHEATS))
    hold_verdicts(bars, rows)
    hold_fixed_stops(bars, max(1, trials // 10))
    hold_intervals(bars, trials)
    hold_halves(bars, max(1, trials // 10))
    hold_first_places(bars, trials)
    hold_comparisons(bars, trials)


def hold_verdicts(bars: Bars, rows: Sequence[Outcomes]) -> None:
    """Compare error rates of verdicts, and what cheats gain in the ranked time, with their bars."""
    honest = {row.strategy.runs: row for row in rows if row.strategy.name == "honest"}
    for row in rows:
        name = f"{row.strategy.name}, {row.strategy.runs} runs"
        is_honest = row.strategy in HONEST
        rejected, measured = row.percent("rejected"), row.percent("rejected", "inconclusive")
        bars.hold(f"{name}: rejected", rejected, " %", at_most=REJECTED_BAR if is_honest else None)
        bars.hold(
            f"{name}: not measured", measured, " %", at_most=NOT_MEASURED_BAR if is_honest else None
        )
        if row.ranked:
            gain = ratio(honest[row.strategy.runs], row)
            bars.hold(f"{name}: gain in the ranked time", gain, at_most=GAIN_BAR)


def ratio(honest: Outcomes, found: Outcomes) -> float:
    """Mean ranked time of honest rows over the mean of a strategy's rows."""
    return float(np.mean(honest.ranked) / np.mean(found.ranked))


def simulate(strategy: Strategy, *, trials: int) -> Outcomes:
    """Simulate verifications of a strategy's logs, with a new reference for every fifty."""
    ours = np.random.default_rng([SEED, 1])
    theirs = np.random.default_rng([SEED, 2, strategy.runs])
    found = Outcomes(strategy)
    benchmark = simulated_benchmark(train(ours, REFERENCE_RUNS), runs=strategy.runs)
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            benchmark = simulated_benchmark(train(ours, REFERENCE_RUNS), runs=strategy.runs)
        sealed, paces = train(ours, SEALED), np.exp(ours.normal(0, PACE_STDEV, SEALED))
        worker = 2.0 ** ours.uniform(-1, 1)  # Half to twice as fast as the submitter's machine.
        replays = [
            reported(seed, stopped(curve, worker * pace))
            for seed, (curve, pace) in enumerate(zip(sealed, paces, strict=True), 1000)
        ]
        curves = [stopped(curve, strategy.pace) for curve in claimed_curves(strategy, theirs)]
        verdict = judged(benchmark, curves, replays, batch_size=64)
        found.trials += 1
        found.counts[verdict.outcome] += 1
        ranked = measured_seconds([run.tta_seconds for run in replays])
        if verdict.outcome == "verified" and ranked is not None:
            found.ranked.append(ranked / worker)
    return found


def train(random: np.random.Generator, runs: int, *, epochs: int = 40) -> Numbers:
    """Qualities after each epoch of some trainings: (runs, epochs)."""
    tau = random.normal(EPOCHS, EPOCHS_STDEV, (runs, 1))
    exact = CEILING * (1 - np.exp(-RATE * np.arange(1, epochs + 1) / tau))
    curves: Numbers = np.round(exact + random.normal(0, NOISE, exact.shape), 2)
    return curves


def claimed_curves(strategy: Strategy, theirs: np.random.Generator) -> list[Numbers]:
    """Curves as they are claimed."""
    trained = train(theirs, strategy.started or strategy.runs)
    best = sorted(range(len(trained)), key=lambda i: epochs_to_target(trained[i]))
    trained = trained[theirs.permutation(best[: strategy.runs])]
    epochs = np.arange(1, trained.shape[1] + 1)
    return [
        np.interp(epochs, epochs * strategy.speed, curve) if index < strategy.forged else curve
        for index, curve in enumerate(trained)
    ]


def epochs_to_target(curve: Numbers) -> int:
    """Return the first epoch at the target, or else the last one."""
    reached = curve >= TARGET
    return int(reached.argmax()) + 1 if reached.any() else len(reached)


def timed(qualities: Iterable[float], pace: float) -> list[Evaluation]:
    """Evaluations at the end of each epoch."""
    return [Evaluation(float(j), j * pace, float(q)) for j, q in enumerate(qualities, 1)]


def stopped(curve: Numbers, pace: float) -> list[Evaluation]:
    """Evaluations up to the target."""
    return timed(curve[: epochs_to_target(curve)], pace)


def reported(seed: int, curve: Sequence[Evaluation], target: float = TARGET) -> ReplayRun:
    """Report a run as a worker does. A run below the target has no time."""
    evaluations = [ReplayEvaluation(e.epoch or 0.0, 0, e.seconds, e.quality, {}) for e in curve]
    if curve[-1].quality < target:
        return ReplayRun(0, seed, "not_reached", evaluations, {})
    return ReplayRun(0, seed, "reached", evaluations, {}, tta_seconds=curve[-1].seconds)


def judged(
    benchmark: Benchmark,
    curves: Sequence[Sequence[Evaluation]],
    replays: Sequence[ReplayRun],
    *,
    batch_size: int,
) -> Verdict:
    """Judge curves that end where they reached the target, and their replays."""
    scores = [
        RunScore(f"{i}.log", i, True, curve[-1].seconds, curve[-1].epoch, None, None)
        for i, curve in enumerate(curves)
    ]
    settings = {"batch_size": batch_size}
    claim = Claim(benchmark.benchmark_id, "closed", "m", "f", SYSTEM, (), settings)
    report = ReplayReport(list(replays), WORKER)
    planned = [Training(benchmark.benchmark_id, {}, run.seed) for run in replays]
    return judge(Case(benchmark, planned, report, claim, scores, curves))


def simulated_benchmark(reference: Numbers, *, runs: int) -> Benchmark:
    """Calibrate a benchmark by a simulated reference."""
    policy = ReplayPolicy("none", SEALED, SEALED, 0.01, 0.5, 60.0, 8.0, 1, False)
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
        replay=policy,
        reference_runs=reference_runs(reference, batch_size=64),
        sha256="0" * 64,
    )


def reference_runs(curves: Numbers, *, batch_size: int) -> tuple[ReferenceRun, ...]:
    """Curves as the runs of a calibration."""
    return tuple(
        ReferenceRun(batch_size, 1000 + i, tuple(c)) for i, c in enumerate(curves.tolist())
    )


def hold_fixed_stops(bars: Bars, trials: int) -> None:
    """Compare error rates of verdicts with their bars, where all runs stop at one step."""
    for name, better in (("honest", 0.0), ("mean 4 deviations too good", 4.0)):
        counts = fixed_stops(trials=trials, better=better)
        for outcome, bar in (
            ("refused", None), ("rejected", REJECTED_BAR), ("inconclusive", NOT_MEASURED_BAR),
        ):  # fmt: skip
            share = 100 * counts[outcome] / trials
            limit = None if better else bar
            bars.hold(f"fixed stop, {name}: {outcome}", share, " %", at_most=limit)


def fixed_stops(*, trials: int, better: float = 0.0) -> Counter[str]:
    """Judge logs with a mean `better` deviations too good. "refused" at submission.

    The reference's own mean is four deviations of a run beyond the target.
    """
    grammar = load_benchmark(GRAMMAR)
    random = np.random.default_rng([SEED + 1, round(10 * STOP_MARGIN), round(10 * better)])
    shipped = np.array([run.quality for run in grammar.reference_runs])
    mean, stdev = shipped.mean(axis=0), shipped.std(axis=0, ddof=1)
    shift = STOP_MARGIN - (grammar.target.value - mean[-1]) / stdev[-1]

    def runs(count: int, lower: float = 0.0) -> Numbers:
        own = random.normal(0, np.sqrt(0.5), (count, 1))
        fresh = random.normal(0, np.sqrt(0.5), (count, len(mean)))
        curves: Numbers = np.round(mean + stdev * (own + fresh) - (shift + lower) * stdev[-1], 4)
        return curves

    counts = Counter[str]()
    benchmark = grammar
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            reference = reference_runs(runs(STOP_REFERENCE_RUNS), batch_size=32)
            benchmark = dataclasses.replace(grammar, reference_runs=reference)
        claimed = runs(STOP_CLAIMED, better)
        finals = claimed[:, -1].tolist()
        target = benchmark.target
        p_value = p_value_of_mean_beyond(finals, target.value, direction=target.direction)
        if p_value is None or p_value >= FIXED_STOP_P_VALUE:
            counts["refused"] += 1
            continue
        replayed = runs(STOP_REPLAYS)
        paces = np.exp(random.normal(0, PACE_STDEV, STOP_CLAIMED + STOP_REPLAYS)).tolist()
        curves = list(map(timed, [*claimed.tolist(), *replayed.tolist()], paces))
        replays = [
            reported(2000 + i, curve, target=-math.inf)
            for i, curve in enumerate(curves[STOP_CLAIMED:])
        ]
        verdict = judged(benchmark, curves[:STOP_CLAIMED], replays, batch_size=32)
        counts[verdict.outcome] += 1
    return counts


def hold_intervals(bars: Bars, trials: int, *, variation: float = 0.08) -> None:
    """Compare the printed interval with the scatter of measured times, and with luck.

    A submitter asks for three runs up to 20 times, or until the pool is 5 % under its true time.
    """
    random = np.random.default_rng([SEED + 2, round(variation * 1000)])
    sigma = math.sqrt(math.log(1 + variation**2))

    def times(runs: int) -> Numbers:
        drawn: Numbers = np.exp(random.normal(0, sigma, (trials, runs)))
        return drawn

    for runs in (3, 5, 10):
        means = mean_of(times(runs))
        inside = np.abs(np.log(means / means.mean())) <= -math.log(1 - half_interval(sigma, runs))
        name = f"interval of {runs} runs holds the expected time"
        bars.hold(name, 100 * float(inside.mean()), " %", at_least=COVERED_BAR)
    honest = mean_of(times(FIRST_RUNS)).mean()
    asked = times(TRIES * FIRST_RUNS)
    ranked, runs_used = stop_when_lucky(times(TRIES * FIRST_RUNS))
    for name, found, runs in (
        ("20 requests that all count", mean_of(asked), TRIES * FIRST_RUNS),
        ("requests until one is lucky", ranked, int(np.median(runs_used))),
    ):
        gain = 100 * (1 - found.mean() / honest)
        half = 100 * half_interval(sigma, runs)
        bars.hold(f"{name}: gain, within the interval", gain, " %", at_most=round(half, 2))


def mean_of(times: Numbers) -> Numbers:
    """Return the olympic mean over the last axis, as the measured time takes it."""
    runs = times.shape[-1]
    drop = dropped_at_each_end(runs)
    kept: Numbers = np.sort(times, axis=-1)[..., drop : runs - drop].mean(axis=-1)
    return kept


def half_interval(sigma: float, runs: int) -> float:
    """Return the relative lower half of the interval printed with a mean of this many runs."""
    interval = interval_of(1.0, runs=runs, spread=Spread(sigma, DEGREES_OF_FREEDOM))
    return 0.0 if interval is None else 1 - interval.low


def stop_when_lucky(times: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """Return the measured times at the end, and their runs."""
    ranked, runs = mean_of(times[:, :FIRST_RUNS]), np.full(len(times), FIRST_RUNS)
    going = ranked > 0.95
    for count in range(2 * FIRST_RUNS, times.shape[1] + 1, FIRST_RUNS):
        pooled = mean_of(times[:, :count])
        ranked, runs = np.where(going, pooled, ranked), np.where(going, count, runs)
        going = going & (pooled > 0.95)
    return ranked, runs


def hold_halves(bars: Bars, trials: int) -> None:
    """Compare how often entries below and above the target are measured with the bars."""
    below = measured_share(np.full((1, RELABELLINGS), HALF_TARGET - 0.2), trials=trials)
    name = f"second half, 0.2 points below with {RELABELLINGS} relabellings: measured"
    bars.hold(name, 100 * below, " %", at_most=1)
    above = measured_share(np.full((1, 1), HALF_TARGET + 0.4), trials=trials)
    bars.hold("second half, 0.4 points above: measured", 100 * above, " %", at_least=90)


def measured_share(qualities: Numbers, *, trials: int, items: int = HALF_ITEMS) -> float:
    """Return the share of simulated submissions that are measured on teacher.

    `qualities` (draws, asks) are true ones in percent. A run follows one of the draws. Each half of
    the test items samples each quality anew, which gives every relabelling the most luck.
    """
    random = np.random.default_rng([SEED + 3, HALF_RUNS, len(qualities)])
    chosen = random.integers(0, len(qualities), (trials, HALF_RUNS))
    drawn = qualities[chosen]  # (trials, runs, asks)
    first, second = (100 * random.binomial(items, drawn / 100) / items for _half in range(2))
    at_target = first >= HALF_TARGET
    reached = np.any(at_target, axis=2, keepdims=True)[..., 0]
    deciding = at_target.argmax(axis=2)
    judged_at = np.take_along_axis(second, deciding[..., None], axis=2)[..., 0]

    def is_measured(hits: NDArray[np.bool_], second_halves: Numbers) -> bool:
        # Every started run counts. A run that misses has no time and skips the second half.
        if measured_seconds([1.0 if hit else None for hit in hits.tolist()]) is None:
            return False
        values = second_halves[hits].tolist()
        return judge_halves(values, target=HALF_TARGET, direction="higher").outcome == "confirmed"

    return sum(map(is_measured, reached, judged_at)) / trials


if __name__ == "__main__":
    run(measure)

"""How good the verdicts are: honest claims rejected, cheats caught, by simulated verifications.

`python perf/verdict_power.py [--trials 10000] [--processes 2]` draws a reference, a claim and its
replays again and again, hands them to the judge that the server uses, and counts the outcomes.
Prints a table, writes docs/images/verdict-power.svg (--svg to put it elsewhere), and exits with 1
if an honest claim is rejected in more than 1 % or a claim that converges 10 % too fast, at a
variation of 5 % and in 10 runs, is caught in less than 95 % of the verifications.

The training is simulated: a run saturates towards 96 % as 1 - exp(-3.87 e / tau), is evaluated
after each epoch e with an error of 0.05, and tau scatters so that the epochs to 94 % have a mean of
20 and a variation of 5 %. Beside it the shipped runs of the digits benchmark are drawn without
overlap as reference, claim and replays.
"""

import argparse
import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from charts.power import write_chart

from rules.benchmark import (
    Benchmark,
    DataSet,
    QualityTarget,
    ReachRule,
    ReferenceRun,
    ReplayPolicy,
    RunsRule,
    load_benchmark,
)
from rules.claim import Claim, System
from rules.clock import Clock
from rules.messages import ReplayEvaluation, ReplayReport, ReplayRun, WorkerSystem
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.tta import first_evaluation_at_target
from rules.verdict import Verdict
from rules.verification import judge

CHECKOUT = Path(__file__).resolve().parents[1]
CHART = CHECKOUT / "docs" / "images" / "verdict-power.svg"
HONEST_BAR, CAUGHT_BAR = 0.01, 0.95
CEILING, TARGET, NOISE = 96.0, 94.0, 0.05
RATE = math.log(CEILING / (CEILING - TARGET))
EPOCHS, EPOCHS_STDEV = 20.0, 0.99  # and 0.13 from the noise: a variation of 5 %
REFERENCE_RUNS, REPLAYS = 40, 4
TRIALS_OF_A_REFERENCE = 50
PACE_STDEV = 0.02
SEED = 20_260

Curves = list[list[float]]
SYSTEM = System("simulated", "class-a", "any")
WORKER = WorkerSystem("w", "class-a", "any", 2, 24.0, None, 0, 1, {})


@dataclass(frozen=True)
class Scenario:
    """One row: what is claimed, how often, and in how many runs.

    `speed` multiplies the epochs of every claimed run, `pace` its seconds per epoch; `started` runs
    are trained and the fastest `runs` handed in: by whole evaluations, or `finely` by the moment
    the curve crosses the target.
    """

    name: str
    runs: int
    speed: float = 1.0
    pace: float = 1.0
    started: int | None = None
    finely: bool = False

    @property
    def is_drawn(self) -> bool:
        """Whether the chart has it: only the epochs differ from those of an honest claim."""
        return self.name == "honest" or self.name.endswith("fewer epochs")


@dataclass(frozen=True)
class Outcomes:
    """How often each outcome came out, and each reason that does not support."""

    scenario: Scenario
    trials: int
    counts: Counter[str]
    reasons: Counter[str]

    def share(self, *outcomes: str) -> float:
        """The share of the verifications with one of some outcomes."""
        return sum(self.counts[outcome] for outcome in outcomes) / self.trials

    @property
    def caught(self) -> float:
        """The share that is not verified."""
        return self.share("rejected", "inconclusive")


def scenarios() -> list[Scenario]:
    """Every row that is measured."""
    rows = [Scenario("honest", runs) for runs in (3, 5, 10)]
    rows += [
        Scenario(f"{percent} % fewer epochs", runs, speed=1 - percent / 100)
        for runs in (3, 5, 10)
        for percent in (2, 5, 10, 20)
    ]
    rows.append(Scenario("half the seconds", 3, pace=0.5))
    rows.append(Scenario("best 3 of 20", 3, started=20))
    rows.append(Scenario("best 5 of 20", 5, started=20))
    rows.append(Scenario("best 5 of 20, finely timed", 5, started=20, finely=True))
    return rows


def simulate(scenario: Scenario, *, trials: int, seed: int = SEED) -> Outcomes:
    """The outcomes of `trials` verifications, a new reference for every fifty of them."""
    random = np.random.default_rng([seed, scenario.runs, round(scenario.speed * 1000)])
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    benchmark = simulated_benchmark([], runs=scenario.runs)
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            benchmark = simulated_benchmark(
                train(random, REFERENCE_RUNS, epochs=32), runs=scenario.runs
            )
        verdict = verify(benchmark, random, scenario)
        counts[verdict.outcome] += 1
        reasons.update({reason.code for reason in verdict.reasons if reason.weight != "supports"})
    return Outcomes(scenario, trials, counts, reasons)


def train(
    random: np.random.Generator, runs: int, *, speed: float = 1.0, epochs: int = 40
) -> Curves:
    """The qualities after each epoch of some trainings."""
    tau = random.normal(EPOCHS, EPOCHS_STDEV, (runs, 1)) * speed
    exact = CEILING * (1 - np.exp(-RATE * np.arange(1, epochs + 1) / tau))
    curves: Curves = np.round(exact + random.normal(0, NOISE, exact.shape), 2).tolist()
    return curves


def verify(benchmark: Benchmark, random: np.random.Generator, scenario: Scenario) -> Verdict:
    """The verdict on one claim of a scenario."""
    started = train(random, scenario.started or scenario.runs, speed=scenario.speed)
    speed = crossing_epoch if scenario.finely else epochs_to_target
    claimed = sorted(started, key=speed)[: scenario.runs]
    claimed = [claimed[i] for i in random.permutation(len(claimed))]
    replayed = train(random, REPLAYS)
    paces = np.exp(random.normal(0, PACE_STDEV, len(claimed) + REPLAYS)).tolist()
    return judged(
        benchmark,
        claimed,
        replayed,
        claimed_paces=[pace * scenario.pace for pace in paces[: len(claimed)]],
        replayed_paces=paces[len(claimed) :],
    )


def epochs_to_target(curve: Sequence[float], target: float = TARGET) -> int:
    """The first epoch at the target, or one more than there are."""
    return next((j for j, quality in enumerate(curve, 1) if quality >= target), len(curve) + 1)


def crossing_epoch(curve: Sequence[float]) -> float:
    """Where the straight line between two evaluations crosses the target, in epochs."""
    epoch = epochs_to_target(curve)
    if not 1 < epoch <= len(curve):
        return float(epoch)
    before, at = curve[epoch - 2], curve[epoch - 1]
    return epoch - (at - TARGET) / (at - before)


def judged(
    benchmark: Benchmark,
    claimed: Sequence[Sequence[float]],
    replayed: Sequence[Sequence[float]],
    *,
    claimed_paces: Sequence[float],
    replayed_paces: Sequence[float],
    batch_size: float = 64,
) -> Verdict:
    """What the judge says of claimed and replayed qualities, each run ending at its target."""
    curves, runs = [], []
    for index, (qualities, pace) in enumerate(zip(claimed, claimed_paces, strict=True)):
        curve = stopped(benchmark, qualities, pace)
        at = first_evaluation_at_target(curve, benchmark.target, benchmark.reach)
        tta, epochs = (at.seconds, at.epoch) if at else (None, None)
        runs.append(RunScore(f"{index}.log", index, at is not None, tta, epochs, None, None))
        curves.append(curve)
    replays = [
        replay(benchmark, index, stopped(benchmark, qualities, pace))
        for index, (qualities, pace) in enumerate(zip(replayed, replayed_paces, strict=True))
    ]
    claim = Claim(
        benchmark.benchmark_id, "closed", "m", "f", SYSTEM, (), {"batch_size": batch_size}
    )
    return judge(benchmark, claim, runs, ReplayReport(replays, WORKER), curves=curves)


def stopped(benchmark: Benchmark, qualities: Sequence[float], pace: float) -> list[Evaluation]:
    """A run's evaluations until it reaches the target, one for each epoch of `pace` seconds."""
    epochs = epochs_to_target(qualities, benchmark.target.value)
    return [Evaluation(float(j), j * pace, q) for j, q in enumerate(qualities[:epochs], 1)]


def replay(benchmark: Benchmark, index: int, curve: Sequence[Evaluation]) -> ReplayRun:
    """A replay as a worker reports it."""
    evaluations = [ReplayEvaluation(e.epoch or 0.0, 0, e.seconds, e.quality, {}) for e in curve]
    reached = benchmark.target.is_reached(curve[-1].quality)
    status, tta = ("reached", curve[-1].seconds) if reached else ("not_reached", None)
    return ReplayRun(index, 1000 + index, status, evaluations, {}, tta_seconds=tta)  # type: ignore[arg-type]


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
        replay=ReplayPolicy("none", REPLAYS, REPLAYS, 0.01, 0.5, 60.0, 8.0, 1, False),
        reference_runs=tuple(ReferenceRun(64, i, tuple(c)) for i, c in enumerate(reference)),
        sha256="0" * 64,
    )


def digits_outcomes(
    digits: Benchmark, batch_size: int, *, trials: int, seed: int = SEED, speed: float = 1.0
) -> Outcomes:
    """Outcomes of claims made of the shipped runs: three claimed, four replayed, the rest known.

    With `speed` a claim's epochs are shortened: its curve is read off at later epochs.
    """
    random = np.random.default_rng([seed, batch_size])
    known = digits.reference_runs_at(batch_size)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    held_out, drawn = digits, list(known)
    for trial in range(trials):
        if trial % 10 == 0:
            drawn = [known[i] for i in random.permutation(len(known))]
            held_out = dataclasses.replace(digits, reference_runs=tuple(drawn[10:]))
        some = [drawn[i].quality for i in random.permutation(10)[:7]]
        paces = (0.11 * np.exp(random.normal(0, PACE_STDEV, 7))).tolist()
        verdict = judged(
            held_out,
            [sped_up(curve, speed) for curve in some[:3]],
            some[3:],
            claimed_paces=paces[:3],
            replayed_paces=paces[3:],
            batch_size=batch_size,
        )
        counts[verdict.outcome] += 1
        reasons.update({reason.code for reason in verdict.reasons if reason.weight != "supports"})
    return Outcomes(Scenario(f"digits, batch {batch_size}", 3, speed), trials, counts, reasons)


def sped_up(curve: Sequence[float], speed: float) -> list[float]:
    """A curve as a training would have it that needs `speed` times the epochs."""
    if speed == 1.0:
        return list(curve)
    epochs = np.arange(1, len(curve) + 1)
    faster: list[float] = np.interp(epochs, epochs * speed, curve).tolist()
    return faster


def _measured(job: tuple[Scenario, int]) -> Outcomes:
    return simulate(job[0], trials=job[1])


def measure(trials: int, processes: int) -> Iterator[Outcomes]:
    """Every scenario, then the shipped runs."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_measured, [(scenario, trials) for scenario in scenarios()])
    digits = load_benchmark(CHECKOUT / "benchmarks" / "digits.toml")
    for batch_size in (32, 64, 128):
        yield digits_outcomes(digits, batch_size, trials=max(1, trials // 5))


def shown(outcomes: Outcomes) -> str:
    """One row of the table, in Markdown."""
    common = outcomes.reasons.most_common(3)
    told = ", ".join(f"`{code}` {count / outcomes.trials:.2%}" for code, count in common)
    return (
        f"| {outcomes.scenario.name} | {outcomes.scenario.runs} | {outcomes.trials:,} "
        f"| {outcomes.share('rejected'):.2%} | {outcomes.share('inconclusive'):.2%} | {told} |"
    )


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = print) -> int:
    """Measure, print, draw; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python perf/verdict_power.py")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--svg", type=Path, default=CHART)
    chosen = parser.parse_args(arguments)
    write("| claim | runs | verifications | rejected | left open | by |")
    write("|---|---|---|---|---|---|")
    rows = []
    for outcomes in measure(chosen.trials, chosen.processes):
        write(shown(outcomes))
        rows.append(outcomes)
    drawn = [row for row in rows if row.scenario.is_drawn]
    write_chart(chosen.svg, {(r.scenario.runs, r.scenario.speed): r.caught for r in drawn})
    honest = max(row.share("rejected") for row in rows if row.scenario.name == "honest")
    ten = next(row for row in rows if (row.scenario.runs, row.scenario.speed) == (10, 0.9))
    return int(honest > HONEST_BAR or ten.share("rejected") < CAUGHT_BAR)


if __name__ == "__main__":
    sys.exit(main())

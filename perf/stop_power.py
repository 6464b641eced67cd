"""How good the verdicts are where all runs stop at the same step, by simulated verifications.

`python perf/stop_power.py [--trials 1000]` draws a reference of 20 runs, a claim of 5 and 3 replays
again and again, hands them to the judge that the server uses, and prints a table of the outcomes.
Exits with 1 if an honest claim is rejected in more than 1 %, or one that is four standard
deviations of a run too good is caught in less than 95 % of the verifications.

A simulated run has the mean curve of the shipped runs of the grammar benchmark and scatters around
it as they do: half of the variance is the run's own from beginning to end, half is new at each
evaluation. At the stop that is 0.007 nats per byte. What the door asks of a claim, a mean below the
target with p < 0.01, is counted apart, because the judge never sees a claim that the door refuses.
"""

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from verdict_power import CAUGHT_BAR, CHECKOUT, HONEST_BAR, PACE_STDEV, SYSTEM, WORKER

from rules.benchmark import Benchmark, ReferenceRun, load_benchmark
from rules.claim import Claim
from rules.messages import ReplayEvaluation, ReplayReport, ReplayRun
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.significance import p_value_of_mean_beyond
from rules.verdict import Verdict
from rules.verification import judge
from rules.violations import FIXED_STOP_P_VALUE

REFERENCE_RUNS, CLAIMED, REPLAYS = 20, 5, 3
TRIALS_OF_A_REFERENCE = 50
SEED = 20_261
TOO_GOOD = "mean 4 standard deviations too good"

Curves = NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """One row. Everything is in standard deviations of a run at the stop, or in its epochs.

    `better` is what a claimed mean is too good by; `margin` how far the reference's own mean is
    beyond the target, None as shipped; `stop` the share of the epochs after which the claim stops;
    `started` runs are trained and the best handed in.
    """

    name: str
    better: float = 0.0
    margin: float | None = None
    stop: float = 1.0
    started: int = CLAIMED


@dataclass(frozen=True)
class StopOutcomes:
    """Outcomes of the judge, and how many claims the door refuses before it."""

    scenario: Scenario
    trials: int
    refused: int
    counts: Counter[str]
    reasons: Counter[str]

    def share(self, outcome: str) -> float:
        """The share of the verifications with an outcome."""
        return self.counts[outcome] / max(1, self.trials - self.refused)

    @property
    def caught(self) -> float:
        """The share that is not verified."""
        return self.share("rejected") + self.share("inconclusive")


SCENARIOS = (
    Scenario("honest"),
    Scenario("honest, mean 4 standard deviations beyond the target", margin=4.0),
    Scenario("honest, mean 2 standard deviations beyond the target", margin=2.0),
    Scenario("mean exactly at the target", margin=0.0),
    Scenario("mean 1 standard deviation too good", better=1.0),
    Scenario("mean 2 standard deviations too good", better=2.0),
    Scenario(TOO_GOOD, better=4.0),
    Scenario("stops after 90 % of the epochs", stop=0.9),
    Scenario("best 5 of 20", started=20),
)


class Language:
    """Draws runs like the shipped ones of the grammar benchmark."""

    def __init__(self, benchmark: Benchmark, random: np.random.Generator) -> None:
        shipped = np.array([run.quality for run in benchmark.reference_runs])
        self.mean, self.stdev = shipped.mean(axis=0), shipped.std(axis=0, ddof=1)
        self.random = random

    def runs(self, count: int, *, shift: float) -> Curves:
        """Curves (count, epochs), their loss lower by `shift` standard deviations at the stop."""
        own = self.random.normal(0, np.sqrt(0.5), (count, 1))
        fresh = self.random.normal(0, np.sqrt(0.5), (count, len(self.mean)))
        curves: Curves = self.mean + self.stdev * (own + fresh) - shift * self.stdev[-1]
        return np.round(curves, 4)


def simulate(scenario: Scenario, *, trials: int, seed: int = SEED) -> StopOutcomes:
    """The outcomes of `trials` verifications, a new reference for every fifty of them."""
    grammar = load_benchmark(CHECKOUT / "benchmarks" / "grammar.toml")
    language = Language(grammar, np.random.default_rng([seed, SCENARIOS.index(scenario)]))
    shift = shift_to_margin(scenario, grammar, language)
    refused, counts, reasons = 0, Counter[str](), Counter[str]()
    benchmark = grammar
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            benchmark = calibrated(grammar, language.runs(REFERENCE_RUNS, shift=shift))
        started = language.runs(scenario.started, shift=shift + scenario.better)
        best = np.sort(np.argsort(started[:, -1], kind="stable")[:CLAIMED])
        claimed = started[best]
        if is_refused(claimed[:, -1].tolist(), benchmark):
            refused += 1
            continue
        epochs = round(scenario.stop * claimed.shape[1])
        replays = language.runs(REPLAYS, shift=shift)
        verdict = judged(benchmark, squeezed(claimed, epochs), replays, language.random)
        counts[verdict.outcome] += 1
        reasons.update({reason.code for reason in verdict.reasons if reason.weight != "supports"})
    return StopOutcomes(scenario, trials, refused, counts, reasons)


def shift_to_margin(scenario: Scenario, benchmark: Benchmark, language: Language) -> float:
    """By how many standard deviations the shipped mean is moved to have the wanted margin."""
    if scenario.margin is None:
        return 0.0
    margin = (benchmark.target.value - language.mean[-1]) / language.stdev[-1]
    return float(scenario.margin - margin)


def calibrated(benchmark: Benchmark, curves: Curves) -> Benchmark:
    """The benchmark with other reference runs."""
    runs = tuple(ReferenceRun(32, 1000 + i, tuple(c)) for i, c in enumerate(curves.tolist()))
    return dataclasses.replace(benchmark, reference_runs=runs)


def is_refused(finals: Sequence[float], benchmark: Benchmark) -> bool:
    """Whether the door refuses a claim: its own mean does not beat the target with p < 0.01."""
    target = benchmark.target
    p_value = p_value_of_mean_beyond(finals, target.value, direction=target.direction)
    return p_value is None or p_value >= FIXED_STOP_P_VALUE


def squeezed(curves: Curves, epochs: int) -> Curves:
    """Curves that come to the same end in fewer epochs."""
    at = np.linspace(0, curves.shape[1] - 1, epochs).round().astype(int)
    return curves[:, at]


def judged(
    benchmark: Benchmark, claimed: Curves, replayed: Curves, random: np.random.Generator
) -> Verdict:
    """What the judge says of curves that all ran to their stop, a second an epoch."""
    paces = np.exp(random.normal(0, PACE_STDEV, len(claimed) + len(replayed))).tolist()
    curves = [timed(curve, pace) for curve, pace in zip(claimed.tolist(), paces, strict=False)]
    runs = [
        RunScore(f"{i}.log", i, True, curve[-1].seconds, curve[-1].epoch, None, None)
        for i, curve in enumerate(curves)
    ]
    replays = []
    for i, (qualities, pace) in enumerate(
        zip(replayed.tolist(), paces[len(claimed) :], strict=True)
    ):
        curve = timed(qualities, pace)
        told = [ReplayEvaluation(e.epoch or 0.0, 0, e.seconds, e.quality, {}) for e in curve]
        replays.append(ReplayRun(i, 2000 + i, "reached", told, {}, tta_seconds=curve[-1].seconds))
    claim = Claim(benchmark.benchmark_id, "closed", "m", "f", SYSTEM, (), {"batch_size": 32})
    return judge(benchmark, claim, runs, ReplayReport(replays, WORKER), curves=curves)


def timed(qualities: Sequence[float], pace: float) -> list[Evaluation]:
    """The evaluations of a run, one for each epoch of `pace` seconds."""
    return [Evaluation(float(j), j * pace, quality) for j, quality in enumerate(qualities, 1)]


def shown(outcomes: StopOutcomes) -> str:
    """One row of the table, in Markdown."""
    judged_claims = outcomes.trials - outcomes.refused
    common = outcomes.reasons.most_common(3)
    told = ", ".join(f"`{code}` {count / max(1, judged_claims):.2%}" for code, count in common)
    return (
        f"| {outcomes.scenario.name} | {outcomes.refused / outcomes.trials:.2%} "
        f"| {judged_claims:,} | {outcomes.share('rejected'):.2%} "
        f"| {outcomes.share('inconclusive'):.2%} | {told} |"
    )


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = print) -> int:
    """Measure and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python perf/stop_power.py")
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args(arguments).trials
    write("| claim | refused at the door | judged | rejected | left open | by |")
    write("|---|---|---|---|---|---|")
    rows = []
    for scenario in SCENARIOS:
        rows.append(simulate(scenario, trials=trials))
        write(shown(rows[-1]))
    good = next(row for row in rows if row.scenario.name == TOO_GOOD)
    return int(rows[0].share("rejected") > HONEST_BAR or good.caught < CAUGHT_BAR)


if __name__ == "__main__":
    sys.exit(main())

"""Train the teacher's reference and its known shortcuts in the box, on data drawn for each run.

`python -m perf.teacher [--draws 40] [--shortcuts 3] [--pairs 5]` prints a row for each package:
draws that reached the target, seconds on the entry clock, processor seconds from the data to the
last ask with their variation, the share of evaluations on the clock, seconds of preparation, and
the lowest last quality. Then the saving by a carried start, with and without it on the same draws,
and how often simulated entries are confirmed by the second half. Exits with 1 where a bar is
missed:

* the reference reaches the target on every draw, and the ridge regression on none;
* the fastest known package takes at least 1 processor second;
* a carried start saves at most 20 %;
* an entry 0.2 points below the target that relabels 20 times is measured in at most 1 % of 1,000
  simulations, one 0.4 above it in at least 90 %, and the reference in at least 99 %.
"""

import argparse
import secrets
import statistics
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.aggregate import coefficient_of_variation_percent
from finishline.rules.trainings.environment import closest_environment
from finishline.rules.trainings.manifest import FILE, Manifest, read_manifest
from perf.harness import CHECKOUT, Bars, ProcessorSamples, print_table
from perf.verdict_halves import Halves, measured_share
from worker.box.environments import installed_environments
from worker.box.local import draw_course, open_task, order_of
from worker.box.order import BoxUnavailableError
from worker.box.race import RaceResult, race
from worker.box.task import TaskBox, TaskError

TEACHER = CHECKOUT / "benchmarks" / "teacher.toml"
REFERENCE = TEACHER.with_suffix("") / "reference"
PACKAGES = CHECKOUT / "examples" / "packages"
FAST, CARRIED, RIDGE = (
    PACKAGES / f"teacher_{name}" for name in ("fast", "carried", "quadratic_ridge")
)
TRIALS, RELABELLINGS = 1_000, 20
HEAD = (
    "package", "reached", "seconds", "processor s", "CV", "evaluation", "prepare", "lowest %",
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A run in the box, with the processor seconds from the data to the last ask."""

    result: RaceResult
    processor_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds on the entry clock to the last ask."""
        return self.result.asks[-1].seconds


class Track:
    """Runs of packages on draws of one nonce: equal numbers are equal data."""

    def __init__(self, benchmark: Benchmark, task: TaskBox, nonce: str) -> None:
        self.benchmark, self.task, self.nonce = benchmark, task, nonce

    def train(
        self,
        package: Path,
        index: int,
        *,
        factors: bool = True,
        off: Collection[str] = (),
        control: bool = False,
    ) -> Trained:
        """Train a package on a draw or a control; `factors` switches all but those `off`."""
        manifest = shipped_manifest(package)
        course = draw_course(
            self.task, self.benchmark, manifest, nonce=self.nonce, index=index, control=control
        )
        chosen = {name: factors and name not in off for name in manifest.factors or {}}
        course = replace(course, task={**course.task, "factors": chosen})
        order = order_of(package, manifest, self.benchmark)
        with ProcessorSamples() as samples:
            result = race(order, course, seed=index)
        if not result.asks:
            raise BoxUnavailableError(f"{package.name}: {result.message} {result.log_tail}")
        start = samples.began + result.ledger.init + result.ledger.warmup
        return Trained(result, samples.between(start, start + result.asks[-1].seconds))


def shipped_manifest(package: Path) -> Manifest:
    """The manifest of a shipped package, for the environment that is installed."""
    manifest = read_manifest((package / FILE).read_bytes())
    installed = closest_environment(manifest.environment, installed_environments())
    return replace(manifest, environment=installed or manifest.environment)


def row_of(name: str, runs: Sequence[Trained]) -> tuple[object, ...]:
    """A row of the table."""
    seconds = [run.seconds for run in runs]
    evaluation = sum(run.result.ledger.eval for run in runs) / sum(seconds)
    prepared = statistics.mean(run.result.ledger.warmup for run in runs)
    used = [run.processor_seconds for run in runs]
    variation = coefficient_of_variation_percent(used)
    return (
        name,
        f"{count_reached(runs)} of {len(runs)}",
        f"{statistics.mean(seconds):.2f}",
        f"{statistics.mean(used):.2f}",
        "" if variation is None else f"{variation:.1f} %",
        f"{evaluation:.1%}",
        f"{prepared:.2f}",
        f"{min(run.result.asks[-1].quality for run in runs):.2f}",
    )


def count_reached(runs: Sequence[Trained]) -> int:
    """Number of runs that reached the target."""
    return sum(run.result.status == "reached" for run in runs)


def hold_luck(bars: Bars, benchmark: Benchmark, reference: Sequence[Trained]) -> None:
    """Simulate entries below, above and like the reference."""
    policy, items = benchmark.trainings, benchmark.data_set.test_items
    assert policy is not None
    assert items is not None
    target = benchmark.target.value
    rule = Halves(target, items, policy.runs)
    most = max(len(run.result.asks) for run in reference)
    curves = np.array(
        [
            [(ask.quality + ask.second_half) / 2 for ask in run.result.asks]
            for run in reference
            if len(run.result.asks) == most
        ]
    )
    below = measured_share(rule, np.full((1, RELABELLINGS), target - 0.2), trials=TRIALS)
    bars.hold("measured 0.2 below with 20 relabellings", 100 * below, " %", at_most=1)
    above = measured_share(rule, np.full((1, 1), target + 0.4), trials=TRIALS)
    bars.hold("measured 0.4 above", 100 * above, " %", at_least=90)
    honest = measured_share(rule, curves, trials=TRIALS)
    bars.hold("measured like the reference", 100 * honest, " %", at_least=99)


def hold_pairs(bars: Bars, track: Track, pairs: int) -> None:
    """Train with the carried start and without it, in turns on the same draws."""
    sides: dict[bool, list[Trained]] = {True: [], False: []}
    for index in range(pairs):
        for factors in (True, False) if index % 2 else (False, True):
            sides[factors].append(track.train(CARRIED, index, factors=factors))
    print_table(HEAD, [row_of("carried start", sides[True]), row_of("drawn start", sides[False])])
    reached = [
        (one, other)
        for one, other in zip(sides[True], sides[False], strict=True)
        if one.result.status == other.result.status == "reached"
    ]
    asks = [f"{len(one.result.asks)}/{len(other.result.asks)}" for one, other in reached]
    bars.say(f"reached at ask, carried/drawn: {', '.join(asks)}")
    ratios = [one.processor_seconds / other.processor_seconds for one, other in reached]
    saved = 100 * (1 - statistics.geometric_mean(ratios)) if ratios else 0.0
    bars.hold("processor seconds saved by a carried start", saved, " %", at_most=20)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m perf.teacher", description=__doc__)
    parser.add_argument("--draws", type=int, default=40, help="of the reference")
    parser.add_argument("--shortcuts", type=int, default=3, help="draws of each shortcut")
    parser.add_argument("--pairs", type=int, default=5, help="draws with and without a start")
    parser.add_argument("--nonce", default=secrets.token_hex(32), help="64 hex digits")
    given = parser.parse_args(arguments)
    bars = Bars("teacher")
    bars.say(f"nonce {given.nonce}")
    try:
        measure(bars, given)
    except (BoxUnavailableError, TaskError, RuleError) as error:
        bars.say(f"not measured: {error}")
        return 1
    return bars.exit_code


def measure(bars: Bars, given: argparse.Namespace) -> None:
    """Train everything in the box and hold the figures against their bars."""
    benchmark = load_benchmark(TEACHER)
    with open_task(TEACHER.with_suffix(""), benchmark) as task:
        track = Track(benchmark, task, given.nonce)
        reference = [track.train(REFERENCE, index) for index in range(given.draws)]
        fast, ridge = (
            [track.train(package, index) for index in range(given.shortcuts)]
            for package in (FAST, RIDGE)
        )
        named = (("reference", reference), (FAST.name, fast), (RIDGE.name, ridge))
        print_table(HEAD, [row_of(name, runs) for name, runs in named])
        bars.hold("draws of the reference", count_reached(reference), at_least=given.draws)
        bars.hold("draws of the ridge regression", count_reached(ridge), at_most=0)
        quickest = statistics.mean(run.processor_seconds for run in fast)
        bars.hold("processor seconds of the fastest package", quickest, " s", at_least=1)
        hold_pairs(bars, track, given.pairs)
    hold_luck(bars, benchmark, reference)


if __name__ == "__main__":
    sys.exit(main())

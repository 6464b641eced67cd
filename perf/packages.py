"""Train the packages of digits and teacher in the box: references, shortcuts and cheats.

`python -m perf.packages [--pairs 20] [--draws 20] [--references 40] [--shortcuts 3] [--carried 5]`
trains the reference of digits as a package and as it is trusted in turns, on the benchmark's own
split. Then it trains the example of `finishline init` on draws, honest packages and cheats
on controls, and teacher's reference, its shortcuts and a carried start on draws. Exits with 1 where
a bar is missed.
"""

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from finishline.package_folder import package_folder
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.run import Phase
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from finishline.rules.trainings.manifest import FILE, Manifest, read_manifest
from perf.harness import CHECKOUT, DIGITS, Bars, ProcessorSamples
from perf.statistics import measured_share
from reference_models.digits import DigitsConfig, read_data_set, train
from worker.sandbox.course import Course, RaceResult
from worker.sandbox.local import draw_course, limits_of, open_task, order_of
from worker.sandbox.order import BoxUnavailableError, closest_environment, installed_environments
from worker.sandbox.protocol import ArraySpec
from worker.sandbox.race import race
from worker.sandbox.task import TaskBox, TaskError

TEACHER = CHECKOUT / "benchmarks" / "teacher.toml"
PACKAGES = CHECKOUT / "examples" / "packages"
TEMPLATE = resources.files("finishline.rules.trainings.template")
REFERENCE = DIGITS.with_suffix("") / "reference"
TRIALS = 1_000


@dataclass(frozen=True)
class Trained:
    """A run in the box, with the processor seconds from the data to the last ask."""

    result: RaceResult
    processor_seconds: float

    @property
    def best(self) -> float:
        """Best quality."""
        return max(ask.quality for ask in self.result.asks)


@dataclass(frozen=True)
class Track:
    """Trains packages on draws of one nonce: equal numbers are equal data."""

    benchmark: Benchmark
    task: TaskBox
    nonce: str

    def train(
        self, package: Path, index: int, *, factors: bool = True, control: bool = False
    ) -> Trained:
        """Train a package on a draw or a control, with all its factors or without."""
        manifest = shipped_manifest(package)
        course = draw_course(
            self.task, self.benchmark, manifest, nonce=self.nonce, index=index, control=control
        )
        chosen = dict.fromkeys(manifest.factors or {}, factors)
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
    return manifest.model_copy(update={"environment": installed or manifest.environment})


def train_boxed(seed: int) -> RaceResult:
    """Train the reference of digits in the box on the benchmark's own split, to the target."""
    benchmark = load_benchmark(DIGITS)
    images, labels = read_data_set()
    tests = np.arange(len(images)) % 3 == 0  # As in the trusted reference.
    answers = labels[tests]

    def score(predictions: bytes) -> tuple[float, float]:
        right = int((np.frombuffer(predictions, np.uint8) == answers).sum())
        return 2 * (100.0 * right / len(answers),)

    course = Course(
        task={"threads": limits_of(benchmark).threads},
        train={"x": images[~tests], "y": labels[~tests]},
        inputs={"x": images[tests]},
        prediction=ArraySpec("uint8", (len(answers),)),
        score=score,
        target=benchmark.target.value,
    )
    order = order_of(REFERENCE, shipped_manifest(REFERENCE), benchmark)
    return race(order, course, seed=seed)


def train_trusted(seed: int, target: float) -> tuple[float, list[float]]:
    """Train the trusted reference here: seconds from the data to the target, and its curve."""
    import torch

    torch.set_num_threads(1)
    curve: list[float] = []
    started = 0.0
    for item in train(DigitsConfig(), seed=seed, device="cpu", data_dir=Path()):
        if not isinstance(item, Phase):
            curve.append(item.quality)
            if item.quality >= target:
                break
        elif item is Phase.TRAIN and not curve:
            started = time.perf_counter()
    return time.perf_counter() - started, curve


def count_reached(runs: Sequence[Trained]) -> int:
    """Number of runs that reached the target."""
    return sum(run.result.status == "reached" for run in runs)


def hold_trusted(bars: Bars, pairs: int) -> None:
    """Train the reference of digits in the box and as it is trusted, in turns."""
    ratios, differ = [], 0
    for seed in range(pairs):
        boxed = train_boxed(seed) if seed % 2 else None
        command = [sys.executable, "-m", "perf.packages", "--trusted", str(seed)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, curve = json.loads(answer.stdout)
        boxed = boxed or train_boxed(seed)
        differ += [ask.quality for ask in boxed.asks] != curve
        ratios.append((boxed.seconds or 0) / seconds)
    bars.hold("curves that differ", differ, at_most=0)
    ratio = 100 * statistics.median(ratios)
    bars.hold("seconds in the box over trusted", ratio, " %", at_least=98, at_most=102)


def hold_controls(bars: Bars, draws: int, nonce: str) -> None:
    """Train the example on draws, and honest packages and cheats of digits on controls."""
    benchmark = load_benchmark(DIGITS)
    policy = benchmark.trainings
    assert policy is not None
    assert policy.control_quality is not None
    files = {name: (TEMPLATE / f"{name}.example").read_bytes() for name in ("train.py", FILE)}
    with package_folder(files) as example, open_task(DIGITS.with_suffix(""), benchmark) as task:
        track = Track(benchmark, task, nonce)

        def on_controls(name: str, package: Path, *, factors: bool = True) -> list[float]:
            runs = (track.train(package, i, factors=factors, control=True) for i in range(draws))
            found = [run.best for run in runs]
            bars.say(f"{name} on controls: {min(found):.1f} to {max(found):.1f} %")
            return found

        reached = count_reached([track.train(example, index) for index in range(draws)])
        bars.hold("draws of the example that reach the target", reached, at_least=draws)
        honest = [*on_controls("reference", REFERENCE), *on_controls("example", example)]
        for name in ("nearest", "convolutions"):
            honest += on_controls(name, PACKAGES / f"digits_{name}")
        flagged = sum(quality < policy.control_quality for quality in honest)
        bars.hold(f"honest of {len(honest)} flagged", flagged, at_most=0)
        for name, package, factors in (
            ("answers", "answers", True),
            ("weights", "weights", False),
            ("weights, classes renamed", "weights", True),
        ):
            best = max(on_controls(name, PACKAGES / f"digits_{package}", factors=factors))
            bars.hold(f"best of {name}", best, " %", at_most=policy.control_quality)


def hold_teacher(bars: Bars, given: argparse.Namespace) -> None:
    """Train the reference of teacher, its known shortcuts and its carried start on draws."""
    benchmark = load_benchmark(TEACHER)
    fast, ridge, carried = (
        PACKAGES / f"teacher_{name}" for name in ("fast", "quadratic_ridge", "carried")
    )
    with open_task(TEACHER.with_suffix(""), benchmark) as task:
        track = Track(benchmark, task, given.nonce)

        def on_draws(package: Path, count: int) -> list[Trained]:
            runs = [track.train(package, index) for index in range(count)]
            say_runs(bars, package.name, runs)
            return runs

        reference = on_draws(TEACHER.with_suffix("") / "reference", given.references)
        reached = count_reached(reference)
        bars.hold("draws of the reference", reached, at_least=given.references)
        quickest = statistics.mean(run.processor_seconds for run in on_draws(fast, given.shortcuts))
        bars.hold("processor seconds of the fastest package", quickest, " s", at_least=1)
        missed = count_reached(on_draws(ridge, given.shortcuts))
        bars.hold("draws of the ridge regression", missed, at_most=0)
        sides: dict[bool, list[Trained]] = {True: [], False: []}
        for index in range(given.carried):
            for factors in (True, False) if index % 2 else (False, True):
                sides[factors].append(track.train(carried, index, factors=factors))
    for factors, runs in sides.items():
        say_runs(bars, f"{'carried' if factors else 'drawn'} start", runs)
    ratios = [
        one.processor_seconds / other.processor_seconds
        for one, other in zip(sides[True], sides[False], strict=True)
        if one.result.status == other.result.status == "reached"
    ]
    saved = 100 * (1 - statistics.geometric_mean(ratios)) if ratios else 0.0
    bars.hold("processor seconds saved by a carried start", saved, " %", at_most=20)
    asks = [run.result.asks for run in reference]
    most = max(map(len, asks))
    curves = [[(a.quality + a.second_half) / 2 for a in each] for each in asks if len(each) == most]
    measured = 100 * measured_share(np.array(curves), trials=TRIALS)
    bars.hold("entries like the reference that are measured", measured, " %", at_least=99)


def say_runs(bars: Bars, name: str, runs: Sequence[Trained]) -> None:
    """Print the figures of the runs of a package."""
    seconds = sum(run.result.asks[-1].seconds for run in runs)
    used = [run.processor_seconds for run in runs]
    prepared = statistics.mean(run.result.ledger.warmup for run in runs)
    scatter = coefficient_of_variation_percent(used) or 0.0
    bars.say(
        f"{name}: {count_reached(runs)} of {len(runs)} reached, {seconds / len(runs):.2f} s, "
        f"{statistics.mean(used):.2f} processor s (CV {scatter:.1f} %), "
        f"{sum(run.result.ledger.eval for run in runs) / seconds:.1%} evaluation, "
        f"{prepared:.2f} s to prepare, lowest {min(r.result.asks[-1].quality for r in runs):.2f} %"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m perf.packages", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="of digits, in the box and trusted")
    parser.add_argument("--draws", type=int, default=20, help="of each package of digits")
    parser.add_argument("--references", type=int, default=40, help="draws of teacher's reference")
    parser.add_argument("--shortcuts", type=int, default=3, help="draws of each shortcut")
    parser.add_argument("--carried", type=int, default=5, help="draws with and without a start")
    parser.add_argument("--nonce", default=secrets.token_hex(32), help="64 hex digits")
    parser.add_argument("--trusted", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.trusted is not None:
        print(json.dumps(train_trusted(given.trusted, load_benchmark(DIGITS).target.value)))
        return 0
    bars = Bars("packages")
    bars.say(f"nonce {given.nonce}")
    try:
        hold_trusted(bars, given.pairs)
        hold_controls(bars, given.draws, given.nonce)
        hold_teacher(bars, given)
    except (BoxUnavailableError, TaskError, RuleError) as error:
        bars.say(f"not measured: {error}")
        return 1
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(main())

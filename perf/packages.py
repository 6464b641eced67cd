"""Train the packages of digits and teacher in the sandbox: references, shortcuts and cheats.

The reference of digits is trained as a package and as it is trusted in turns, on the benchmark's
own split. Then the example of `finishline init` is trained on draws, honest packages and cheats on
controls, and teacher's reference, its shortcuts and a carried start on draws.
"""

import multiprocessing
import re
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from finishline.package_folder import package_folder
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.run import Phase
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from finishline.rules.trainings.manifest import FILE, Manifest, read_manifest
from perf.harness import CHECKOUT, DIGITS, Bars, median_ratio, run
from perf.statistics import measured_share
from reference_models.digits import DigitsConfig, read_data_set, train
from worker.sandbox.course import Course, RaceResult
from worker.sandbox.local import open_task, racer_of, train_run
from worker.sandbox.order import BoxUnavailableError, installed_environments
from worker.sandbox.protocol import ArraySpec
from worker.sandbox.race import race
from worker.sandbox.task import TaskBox

TEACHER = CHECKOUT / "benchmarks" / "teacher.toml"
PACKAGES = CHECKOUT / "examples" / "packages"
TEMPLATE = resources.files("finishline.rules.trainings.template")
REFERENCE = DIGITS.with_suffix("") / "reference"
TRIALS = 1_000


@dataclass(frozen=True)
class Track:
    """Trains packages on draws of one nonce: equal numbers are equal data."""

    benchmark: Benchmark
    task: TaskBox
    nonce: str

    def train(
        self, package: Path, index: int, *, factors: bool = True, control: bool = False
    ) -> RaceResult:
        """Train a package on a draw or a control, with all its factors or without."""
        result = train_run(
            self.task,
            self.benchmark,
            racer_of(package, shipped_manifest(package), self.benchmark),
            nonce=self.nonce,
            index=index,
            seed=index,
            factors=factors,
            control=control,
        )
        if not result.asks:
            raise BoxUnavailableError(f"{package.name}: {result.message} {result.log_tail}")
        return result


def shipped_manifest(package: Path) -> Manifest:
    """Read the manifest of a shipped package, for the installed version of its environment."""
    manifest = read_manifest((package / FILE).read_bytes())
    named = re.sub(r"\d+\.\d+", "", manifest.environment)
    for installed in installed_environments():
        if re.sub(r"\d+\.\d+", "", installed) == named:
            return manifest.model_copy(update={"environment": installed})
    return manifest


def train_boxed(seed: int) -> RaceResult:
    """Train the reference of digits in the box on the benchmark's own split, to the target."""
    benchmark = load_benchmark(DIGITS)
    images, labels = read_data_set()
    tests = np.arange(len(images)) % 3 == 0  # As in the trusted reference.
    answers = labels[tests]

    def score(predictions: bytes) -> tuple[float, float]:
        right = int((np.frombuffer(predictions, np.uint8) == answers).sum())
        return 2 * (100.0 * right / len(answers),)

    order = racer_of(REFERENCE, shipped_manifest(REFERENCE), benchmark).order
    course = Course(
        task={"threads": order.limits.threads},
        train={"x": images[~tests], "y": labels[~tests]},
        inputs={"x": images[tests]},
        prediction=ArraySpec("uint8", (len(answers),)),
        score=score,
        target=benchmark.target.value,
    )
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


def count_reached(runs: Sequence[RaceResult]) -> int:
    return sum(run.status == "reached" for run in runs)


def best_of(run: RaceResult) -> float:
    """Return the best quality of a run."""
    return max(ask.quality for ask in run.asks)


def seconds_of(run: RaceResult) -> float:
    """Return seconds from the data to the last ask."""
    return run.asks[-1].seconds


def hold_trusted(bars: Bars, pairs: int) -> None:
    """Train the reference of digits in the sandbox and as it is trusted, in turns."""
    target = load_benchmark(DIGITS).target.value
    boxed, trusted, differ = [], [], 0
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for seed in range(pairs):
            result = train_boxed(seed)
            seconds, curve = pool.apply(train_trusted, (seed, target))
            differ += [ask.quality for ask in result.asks] != curve
            boxed.append(result.seconds or 0.0)
            trusted.append(seconds)
    bars.hold("curves that differ", differ, at_most=0)
    ratio = 100 * median_ratio(boxed, trusted)
    bars.hold("seconds in the sandbox over trusted", ratio, " %", at_least=98, at_most=102)


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
            found = [best_of(run) for run in runs]
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


def hold_teacher(bars: Bars, nonce: str, *, references: int, shortcuts: int, carried: int) -> None:
    """Train the reference of teacher, its known shortcuts and its carried start on draws."""
    benchmark = load_benchmark(TEACHER)
    fast, ridge, start = (
        PACKAGES / f"teacher_{name}" for name in ("fast", "quadratic_ridge", "carried")
    )
    with open_task(TEACHER.with_suffix(""), benchmark) as task:
        track = Track(benchmark, task, nonce)

        def on_draws(package: Path, count: int) -> list[RaceResult]:
            runs = [track.train(package, index) for index in range(count)]
            say_runs(bars, package.name, runs)
            return runs

        reference = on_draws(TEACHER.with_suffix("") / "reference", references)
        reached = count_reached(reference)
        bars.hold("draws of the reference", reached, at_least=references)
        quickest = statistics.mean(map(seconds_of, on_draws(fast, shortcuts)))
        bars.hold("seconds of the fastest package", quickest, " s", at_least=1)
        missed = count_reached(on_draws(ridge, shortcuts))
        bars.hold("draws of the ridge regression", missed, at_most=0)
        sides: dict[bool, list[RaceResult]] = {True: [], False: []}
        for index in range(carried):
            for factors in (True, False) if index % 2 else (False, True):
                sides[factors].append(track.train(start, index, factors=factors))
    for factors, runs in sides.items():
        say_runs(bars, f"{'carried' if factors else 'drawn'} start", runs)
    ratios = [
        seconds_of(one) / seconds_of(other)
        for one, other in zip(sides[True], sides[False], strict=True)
        if one.status == other.status == "reached"
    ]
    saved = 100 * (1 - statistics.geometric_mean(ratios)) if ratios else 0.0
    bars.hold("seconds saved by a carried start", saved, " %", at_most=20)
    asks = [run.asks for run in reference]
    most = max(map(len, asks))
    curves = [[(a.quality + a.second_half) / 2 for a in each] for each in asks if len(each) == most]
    measured = 100 * measured_share(np.array(curves), trials=TRIALS)
    bars.hold("entries like the reference that are measured", measured, " %", at_least=99)


def say_runs(bars: Bars, name: str, runs: Sequence[RaceResult]) -> None:
    """Print the figures of the runs of a package."""
    seconds = list(map(seconds_of, runs))
    scatter = coefficient_of_variation_percent(seconds) or 0.0
    bars.say(
        f"{name}: {count_reached(runs)} of {len(runs)} reached, {statistics.mean(seconds):.2f} s "
        f"(CV {scatter:.1f} %), lowest {min(best_of(run) for run in runs):.2f} %"
    )


def measure(
    bars: Bars,
    *,
    pairs: int = 20,
    draws: int = 20,
    references: int = 40,
    shortcuts: int = 3,
    carried: int = 5,
    nonce: str = "",
) -> None:
    """Train this many of each. A nonce is 64 hex digits, drawn by default."""
    nonce = nonce or secrets.token_hex(32)
    bars.say(f"nonce {nonce}")
    hold_trusted(bars, pairs)
    hold_controls(bars, draws, nonce)
    hold_teacher(bars, nonce, references=references, shortcuts=shortcuts, carried=carried)


if __name__ == "__main__":
    run(measure)

"""Train packages of digits in the box: the reference beside the trusted one, and controls.

`python -m perf.digits [--pairs 20] [--draws 20]` trains the reference as a package and the trusted
reference in turns, on the benchmark's own split, each in a process of its own. Then it trains the
example of `finishline training init` on as many draws, and honest packages and cheats on as many
controls. Exits with 1 where a bar is missed:

* no curve differs in any bit, and the seconds from the data to the target differ by at most 2 %
  (median of the pairs);
* the example reaches the target on every draw;
* every cheat's best quality is below the benchmark's `control_quality`, and no honest one's.
"""

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from finishline.package_folder import package_folder
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.scoring.run import Phase
from finishline.rules.trainings.manifest import FILE
from finishline.rules.trainings.protocol import ArraySpec
from perf.harness import DIGITS, Bars
from perf.teacher import PACKAGES, Track, count_reached, shipped_manifest
from reference_models.digits import DigitsConfig, read_data_set, train
from worker.box.local import limits_of, open_task, order_of
from worker.box.race import Course, RaceResult, race

MODULE = "train.py"
TEMPLATE = resources.files("finishline.rules.trainings.template")
REFERENCE = DIGITS.with_suffix("") / "reference"


def identity_course(benchmark: Benchmark) -> Course:
    """The benchmark's own split: every third image tests, as in the trusted reference."""
    images, labels = read_data_set()
    tests = np.arange(len(images)) % 3 == 0
    answers = labels[tests]

    def score(predictions: bytes) -> tuple[float, float]:
        right = int((np.frombuffer(predictions, np.uint8) == answers).sum())
        return 2 * (100.0 * right / len(answers),)

    return Course(
        task={"threads": limits_of(benchmark).threads},
        train={"x": images[~tests], "y": labels[~tests]},
        inputs={"x": images[tests]},
        prediction=ArraySpec("uint8", (len(answers),)),
        score=score,
        target=benchmark.target.value,
    )


def train_boxed(seed: int) -> RaceResult:
    """Train the package in the box, to the target."""
    benchmark = load_benchmark(DIGITS)
    order = order_of(REFERENCE, shipped_manifest(REFERENCE), benchmark)
    return race(order, identity_course(benchmark), seed=seed)


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


def control_qualities(track: Track, package: Path, draws: int, *, factors: bool) -> list[float]:
    """The best quality of a package on each control."""
    runs = (track.train(package, at, factors=factors, control=True) for at in range(draws))
    return [max(ask.quality for ask in run.result.asks) for run in runs]


def hold_pairs(bars: Bars, pairs: int) -> None:
    """Train the reference in the box and as it is trusted, in turns."""
    ratios, differ = [], 0
    for seed in range(pairs):
        boxed = train_boxed(seed) if seed % 2 else None
        command = [sys.executable, "-m", "perf.digits", "--trusted", str(seed)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, curve = json.loads(answer.stdout)
        boxed = boxed or train_boxed(seed)
        differ += [ask.quality for ask in boxed.asks] != curve
        ratios.append((boxed.seconds or 0) / seconds)
    bars.hold("curves that differ", differ, at_most=0)
    ratio = statistics.median(ratios)
    bars.hold("seconds in the box over trusted", 100 * ratio, " %", at_least=98, at_most=102)


def hold_controls(bars: Bars, draws: int, nonce: str) -> None:
    """Train the example on draws, and honest packages and cheats on controls."""
    benchmark = load_benchmark(DIGITS)
    policy = benchmark.trainings
    assert policy is not None
    assert policy.control_quality is not None
    example = {name: (TEMPLATE / f"{name}.example").read_bytes() for name in (MODULE, FILE)}
    with (
        package_folder(example) as fast,
        open_task(DIGITS.with_suffix(""), benchmark) as task,
    ):
        track = Track(benchmark, task, nonce)
        reached = count_reached([track.train(fast, index) for index in range(draws)])
        bars.hold("draws of the example", reached, at_least=draws)
        honest = {"reference": REFERENCE, "example": fast} | {
            name: PACKAGES / f"digits_{name}" for name in ("nearest", "convolutions")
        }
        flagged = 0
        for name, package in honest.items():
            found = control_qualities(track, package, draws, factors=True)
            flagged += sum(quality < policy.control_quality for quality in found)
            bars.say(f"{name} on controls: {min(found):.1f} to {max(found):.1f} %")
        bars.hold(f"honest of {len(honest) * draws} flagged", flagged, at_most=0)
        for name, factors in (("answers", True), ("weights", False), ("weights", True)):
            found = control_qualities(track, PACKAGES / f"digits_{name}", draws, factors=factors)
            words = f"{name}{', classes renamed' if name == 'weights' and factors else ''}"
            best = max(found)
            bars.say(f"{words} on controls: {min(found):.1f} to {best:.1f} %")
            bars.hold(f"best of {words}", best, " %", at_most=policy.control_quality)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m perf.digits", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--nonce", default=secrets.token_hex(32), help="64 hex digits")
    parser.add_argument("--trusted", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.trusted is not None:
        print(json.dumps(train_trusted(given.trusted, load_benchmark(DIGITS).target.value)))
        return 0
    bars = Bars("digits")
    bars.say(f"nonce {given.nonce}")
    if given.pairs:
        hold_pairs(bars, given.pairs)
    if given.draws:
        hold_controls(bars, given.draws, given.nonce)
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(main())

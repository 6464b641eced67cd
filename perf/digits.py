"""Train packages of digits in the box: the reference beside the trusted one, and controls.

`python -m perf.digits [--pairs 20] [--draws 20] [--speed-ups 0] [--naps 0]` trains the reference as
a package and the trusted reference in turns, on the benchmark's own split, each in a process of its
own. Then it trains the example of `finishline training init` on as many draws, and honest packages
and cheats on as many controls. With `--speed-ups 20` it measures the speed-up of a package with two
convolutions that often, each time on the idle machine and with one core kept busy, to a target of
90 % and on draws of its own. With `--naps 5` it measures the factors of a package that sleeps for a
known time where one of them is off, in that many repeats. Exits with 1 where a bar is missed:

* no curve differs in any bit, and the seconds from the data to the target differ by at most 2 %
  (median of the pairs);
* the example reaches the target on every draw;
* every cheat's best quality is below the benchmark's `control_quality`, and no honest one's;
* the 95 % intervals of a speed-up under the two loads overlap in 9 of 10 times;
* the seconds of a factor differ from the nap by at most 5 %.
"""

import argparse
import json
import math
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from finishline.package_folder import package_folder
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.scoring.run import Phase
from finishline.rules.statistics.pairs import paired_gap
from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.trainings.manifest import FILE
from finishline.rules.trainings.protocol import ArraySpec
from finishline.rules.trainings.speed_up import SpeedUp, speed_up
from finishline.rules.verification.ablation import variants_of
from finishline.rules.verification.speed_up import SpeedUpSide, side_of_run
from perf.harness import DIGITS, Bars
from perf.teacher import PACKAGES, Track, count_reached, shipped_manifest
from reference_models.digits import DigitsConfig, read_data_set, train
from worker.box.local import limits_of, open_task, order_of
from worker.box.race import Course, RaceResult, race

MODULE = "train.py"
TEMPLATE = resources.files("finishline.rules.trainings.template")
REFERENCE = DIGITS.with_suffix("") / "reference"
CONVOLUTIONS = PACKAGES / "digits_convolutions"
EASIER = 90.0  # A few epochs of either reach it.
NAP_SECONDS = 0.5
NAPPING = f"""
def train(prepared, data, seed):
    time.sleep({NAP_SECONDS} * (2 if prepared["awake"] else 3))
    return votes(prepared, data, seed)


def prepare(task):
    return task["factors"]
"""
NAPPING_FACTORS = """
[factors]
awake = "No nap before the vote"
plain = "Nothing: it has no effect"
"""


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


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy with another process."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure_speed_up(track: Track, pairs: int, *, first: int) -> tuple[SpeedUp | None, float]:
    """Train reference and package in turn, on draws from `first` on; mean seconds of a run too."""
    packages: dict[SpeedUpSide, Path] = {"reference": REFERENCE, "package": CONVOLUTIONS}
    seconds: dict[SpeedUpSide, list[float | None]] = {side: [] for side in packages}
    for index in range(2 * pairs):
        side = side_of_run(index)
        run = track.train(packages[side], first + index // 2)
        seconds[side].append(run.result.seconds)
    known = [each for side in seconds.values() for each in side if each is not None]
    found = speed_up(seconds["package"], seconds["reference"])
    return found, statistics.mean(known) if known else math.nan


def hold_speed_ups(bars: Bars, repeats: int, pairs: int, nonce: str) -> None:
    """Measure a speed-up on the idle machine and with a busy core, in turns."""
    benchmark = load_benchmark(DIGITS)
    easier = replace(benchmark, target=replace(benchmark.target, value=EASIER))
    overlaps = 0
    ratios: dict[str, list[float]] = {"idle": [], "busy": []}
    with open_task(DIGITS.with_suffix(""), easier) as task:
        track = Track(easier, task, nonce)
        for repeat in range(repeats):
            found: dict[str, SpeedUp | None] = {}
            for load in list(ratios)[:: -1 if repeat % 2 else 1]:
                draws = 2 * repeat + (load == "busy")
                with busy_core() if load == "busy" else nullcontext():
                    found[load], mean = measure_speed_up(track, pairs, first=draws * pairs)
                bars.say(f"{repeat + 1} {load}: {_words(found[load])}, {mean:.3f} s a run")
            one, other = found["idle"], found["busy"]
            if one is not None and other is not None:
                overlaps += one.low <= other.high and other.low <= one.high
                ratios["idle"].append(one.ratio)
                ratios["busy"].append(other.ratio)
    for load, those in ratios.items():
        if those:
            bars.say(f"{load}: speed-up {statistics.geometric_mean(those):.3f} in all")
    least = math.ceil(0.9 * repeats)
    bars.hold(f"of {repeats} times both intervals overlap in", overlaps, at_least=least)


def hold_naps(bars: Bars, repeats: int, nonce: str) -> None:
    """Train a package without each of its factors, of which one is a nap of a known time."""
    benchmark = load_benchmark(DIGITS)
    easier = replace(benchmark, target=replace(benchmark.target, value=EASIER))
    nearest = {path.name: path.read_text() for path in (PACKAGES / "digits_nearest").iterdir()}
    nearest[MODULE] = (
        "import time\n" + nearest[MODULE].replace("def train(", "def votes(") + NAPPING
    )
    nearest[FILE] += NAPPING_FACTORS
    seconds: dict[tuple[str, ...], list[float]] = {}
    with (
        package_folder({name: text.encode() for name, text in nearest.items()}) as package,
        open_task(DIGITS.with_suffix(""), easier) as task,
    ):
        track = Track(easier, task, nonce)
        for repeat in range(repeats):
            for off in variants_of(("awake", "plain"))[:: -1 if repeat % 2 else 1]:
                run = track.train(package, repeat, off=off)
                seconds.setdefault(off, []).append(run.result.seconds or math.nan)
    whole = seconds.pop(())
    for off, those in seconds.items():
        gap = paired_gap(list(zip(those, whole, strict=True)), quantum=SHORTEST_SECONDS)
        if gap is None:
            continue
        found = (gap.ratio - 1) * statistics.geometric_mean(whole)
        words = f"{gap.ratio:.4f} ({gap.low:.4f} to {gap.high:.4f}, {gap.pairs} pairs)"
        bars.say(f"without {' and '.join(off)}: {words}, {found:+.4f} s")
        if off == ("awake",):
            share = 100 * found / NAP_SECONDS
            bars.hold("seconds of a factor over its nap", share, " %", at_least=95, at_most=105)


def _words(found: SpeedUp | None) -> str:
    if found is None:
        return "no speed-up, a run missed the target"
    return f"speed-up {found.ratio:.3f} ({found.low:.3f} to {found.high:.3f}, {found.pairs} pairs)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m perf.digits", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--speed-ups", type=int, default=0, help="times under each load")
    parser.add_argument("--speed-up-pairs", type=int, default=6, help="pairs of each")
    parser.add_argument("--naps", type=int, default=0, help="repeats of a package with a nap")
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
    if given.speed_ups:
        hold_speed_ups(bars, given.speed_ups, given.speed_up_pairs, given.nonce)
    if given.naps:
        hold_naps(bars, given.naps, given.nonce)
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(main())

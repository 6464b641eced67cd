"""Try a benchmark's task on this machine: draw its data, score made-up predictions.

`python -m worker.sandbox.trial BENCHMARK.toml` reads the task in the folder beside it and writes
one JSON event a line: `box`, `drawn`, `guessed`, and `problem` for each rule that the task breaks.
Exit code 0 if it was tried, 2 for wrong usage, 4 where no box can be started.
"""

import hashlib
import math
import re
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.benchmarks.quality import UNITS
from worker.events import tell
from worker.sandbox.course import Course
from worker.sandbox.local import exit_code_of, open_task, require_box
from worker.sandbox.order import PACKAGE
from worker.sandbox.protocol import PREDICTION_TYPES
from worker.sandbox.task import TaskError

MOST_SECONDS = 10.0
MOST_CONSTANTS = 16
TASK = "task.py"
EXPECTED = (
    "draw(nonce) with train, inputs (arrays by name), predictions (type, shape) and "
    "score(predictions), which returns the quality on each half, in a sandbox: numpy, files beside "
    "it, no network, no writes, 10 s, 1 GiB"
)
_PLACE = re.compile(rf'File "{PACKAGE}/([\w./-]+)", line (\d+), in (\w+)')


@dataclass(frozen=True)
class Draw:
    """A draw in a fresh box: its data, and the seconds that it took."""

    course: Course
    seconds: float

    @property
    def sha256(self) -> str:
        """Hash over names, types, shapes and bytes of all arrays."""
        digest = hashlib.sha256()
        for group in (self.course.train, self.course.inputs):
            for name, array in group.items():
                digest.update(f"{name} {array.dtype} {array.shape}\0".encode() + array.tobytes())
        return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the task, print events, return the exit code."""
    (file,) = sys.argv[1:] if arguments is None else arguments
    return exit_code_of(partial(_run, Path(file)))


def _run(path: Path) -> int:
    benchmark = load_benchmark(path)
    require_box()
    try:
        _try(path.with_suffix(""), benchmark)
    except TaskError as error:
        _problem(str(error), **_place(error.log))
    return 0


def _try(folder: Path, benchmark: Benchmark) -> None:
    first, other = secrets.token_bytes(32), secrets.token_bytes(32)
    drawn = _drawn(folder, benchmark, first)
    if drawn.seconds > MOST_SECONDS:
        expected = f"at most {MOST_SECONDS:g} s"
        _problem(f"a draw takes {drawn.seconds:.1f} s", expected=expected)
        return
    prediction = drawn.course.prediction
    if prediction.dtype not in PREDICTION_TYPES:
        expected = f"one of {', '.join(PREDICTION_TYPES)}"
        _problem(f"predictions of {prediction.dtype}", field="predictions", expected=expected)
        return
    again = _drawn(folder, benchmark, first)
    if again.sha256 != drawn.sha256:
        _problem("two draws of one nonce differ", expected="equal bytes for equal nonces")
    is_other = _drawn(folder, benchmark, other).sha256 != drawn.sha256
    trainings = benchmark.trainings
    if not is_other and trainings is not None and trainings.trust == "ranked":
        expected = 'data that the nonce draws, or trust = "demonstration"'
        _problem("draws of different nonces are equal", expected=expected)
    tell(
        "drawn",
        train=_listed(drawn.course.train),
        inputs=_listed(drawn.course.inputs),
        prediction=[prediction.dtype, list(prediction.shape)],
        seconds=drawn.seconds,
        is_drawn=is_other,
    )
    _guess(folder, benchmark, first)


def _drawn(folder: Path, benchmark: Benchmark, nonce: bytes) -> Draw:
    with open_task(folder, benchmark) as task:
        started = time.perf_counter()
        course = task.draw(nonce, facts={}, target=benchmark.target.value)
        return Draw(course, time.perf_counter() - started)


def _guess(folder: Path, benchmark: Benchmark, nonce: bytes) -> None:
    """Score predictions without knowledge: constants and random ones."""
    target, best = benchmark.target, None
    with open_task(folder, benchmark) as task:
        course = task.draw(nonce, facts={}, target=target.value)
        for name, guess in guesses(course):
            qualities = task.score(guess.tobytes())
            if any(map(math.isnan, qualities)) and (error := task.last_error()) is not None:
                raise error
            if not all(_is_quality(each, target.unit) for each in qualities):
                _problem(
                    f"score() gave {qualities[0]:g} and {qualities[1]:g}",
                    field="score",
                    expected=f"two finite numbers in {target.unit}",
                )
                return
            if best is None or _better(qualities, best[1], benchmark):
                best = (name, qualities)
            reached = [each for each in qualities if target.is_reached(each)]
            if reached:
                _problem(
                    f"{name} predictions reach the target with {reached[0]:g}",
                    field="score",
                    expected=f"worse than {target.value:g} without training",
                )
                break
    if best is not None:
        tell("guessed", by=best[0], qualities=best[1])


def _better(found: Sequence[float], best: Sequence[float], benchmark: Benchmark) -> bool:
    higher = benchmark.target.direction == "higher"
    return max(found) > max(best) if higher else min(found) < min(best)


def guesses(course: Course) -> Iterator[tuple[str, Any]]:
    """Predictions of a package that has learnt nothing, with a word for each."""
    draw, spec = np.random.default_rng(0), course.prediction
    labels: list[Any] = [each for each in course.train.values() if each.ndim == 1]
    if spec.dtype == "float32":
        for constant in {0.0, *(float(np.median(each)) for each in labels)}:
            yield f"constant ({constant:g})", np.full(spec.shape, constant, spec.dtype)
        yield "random", draw.standard_normal(spec.shape).astype(spec.dtype)
        return
    whole = [int(each.max()) + 1 for each in labels if each.dtype.kind in "iu"]
    classes = max(2, min(256, max(whole, default=10)))
    # The largest number is no item's class. A score that it stops makes failures of the host.
    for one in (*range(min(classes, MOST_CONSTANTS)), np.iinfo(spec.dtype).max):
        yield f"constant ({one})", np.full(spec.shape, one, spec.dtype)
    yield "random", draw.integers(0, classes, spec.shape).astype(spec.dtype)


def _is_quality(value: float, unit: str) -> bool:
    scale = UNITS.get(unit)
    return math.isfinite(value) and (scale is None or 0 <= value <= scale)


def _listed(arrays: Any) -> dict[str, list[Any]]:
    return {name: [str(each.dtype), list(each.shape), each.nbytes] for name, each in arrays.items()}


def _place(log: str) -> dict[str, Any]:
    """The last line of the task's own files that a traceback names, and its function."""
    found = _PLACE.findall(log)
    if not found:
        return {"expected": EXPECTED}
    file, line, function = found[-1]
    return {"file": file, "line": int(line), "field": function, "expected": EXPECTED}


def _problem(message: str, **place: Any) -> None:
    told = {"file": TASK, "line": None, "field": "draw", "expected": None} | place
    tell("problem", message=message, **told)


if __name__ == "__main__":
    sys.exit(main())

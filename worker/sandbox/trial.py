"""Try a benchmark's task on this machine: draw its data, score made-up predictions.

`python -m worker.sandbox.trial BENCHMARK.toml` reads the task in the folder next to it and writes
one JSON event a line: `box`, `drawn`, `guessed`, and `problem` for each broken rule. Exit code 0
after the trial, 2 for wrong usage, 4 if the sandbox cannot start.
"""

import hashlib
import math
import re
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
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
    course, seconds, sha256 = _drawn(folder, benchmark, first)
    if seconds > MOST_SECONDS:
        _problem(f"a draw takes {seconds:.1f} s", expected=f"at most {MOST_SECONDS:g} s")
        return
    prediction = course.prediction
    if prediction.dtype not in PREDICTION_TYPES:
        expected = f"one of {', '.join(PREDICTION_TYPES)}"
        _problem(f"predictions of {prediction.dtype}", field="predictions", expected=expected)
        return
    if _drawn(folder, benchmark, first)[2] != sha256:
        _problem("two draws of one nonce differ", expected="equal bytes for equal nonces")
    is_other = _drawn(folder, benchmark, other)[2] != sha256
    trainings = benchmark.trainings
    if not is_other and trainings is not None and trainings.trust == "ranked":
        expected = 'data that the nonce draws, or trust = "demonstration"'
        _problem("draws of different nonces are equal", expected=expected)
    tell(
        "drawn",
        train=_listed(course.train),
        inputs=_listed(course.inputs),
        prediction=[prediction.dtype, list(prediction.shape)],
        seconds=seconds,
        is_drawn=is_other,
    )
    _guess(folder, benchmark, first)


def _drawn(folder: Path, benchmark: Benchmark, nonce: bytes) -> tuple[Course, float, str]:
    """Draw in a fresh sandbox. Returns the data, the seconds of the draw, and a hash."""
    with open_task(folder, benchmark) as task:
        started = time.perf_counter()
        course = task.draw(nonce, facts={}, target=benchmark.target.value)
        seconds = time.perf_counter() - started
    digest = hashlib.sha256()
    for group in (course.train, course.inputs):
        for name, array in group.items():
            digest.update(f"{name} {array.dtype} {array.shape}\0".encode() + array.tobytes())
    return course, seconds, digest.hexdigest()


def _guess(folder: Path, benchmark: Benchmark, nonce: bytes) -> None:
    """Score predictions without training: constants and random ones."""
    target, tried = benchmark.target, []
    with open_task(folder, benchmark) as task:
        course = task.draw(nonce, facts={}, target=target.value)
        for name, guess in guesses(course):
            qualities = task.score(guess.tobytes())
            if any(map(math.isnan, qualities)) and (error := task.last_error()) is not None:
                raise error
            most = UNITS.get(target.unit)
            finite = all(map(math.isfinite, qualities))
            if not finite or (most is not None and not all(0 <= q <= most for q in qualities)):
                _problem(
                    f"score() gave {qualities[0]:g} and {qualities[1]:g}",
                    field="score",
                    expected=f"two finite numbers in {target.unit}",
                )
                return
            tried.append((name, qualities))
            reached = [each for each in qualities if target.is_reached(each)]
            if reached:
                _problem(
                    f"{name} predictions reach the target with {reached[0]:g}",
                    field="score",
                    expected=f"worse than {target.value:g} without training",
                )
                break
    sign = 1 if target.direction == "higher" else -1
    name, qualities = max(tried, key=lambda each: max(sign * quality for quality in each[1]))
    tell("guessed", by=name, qualities=qualities)


def guesses(course: Course) -> Iterator[tuple[str, Any]]:
    """Yield untrained predictions, with a word for each."""
    draw, spec = np.random.default_rng(0), course.prediction
    labels: list[Any] = [each for each in course.train.values() if each.ndim == 1]
    if spec.dtype == "float32":
        for constant in {0.0, *(float(np.median(each)) for each in labels)}:
            yield f"constant ({constant:g})", np.full(spec.shape, constant, spec.dtype)
        yield "random", draw.standard_normal(spec.shape).astype(spec.dtype)
        return
    whole = [int(each.max()) + 1 for each in labels if each.dtype.kind in "iu"]
    classes = max(2, min(256, max(whole, default=10)))
    # The largest number is beyond all classes. A score that fails on it would blame the host.
    for one in (*range(min(classes, MOST_CONSTANTS)), np.iinfo(spec.dtype).max):
        yield f"constant ({one})", np.full(spec.shape, one, spec.dtype)
    yield "random", draw.integers(0, classes, spec.shape).astype(spec.dtype)


def _listed(arrays: Any) -> dict[str, list[Any]]:
    return {name: [str(each.dtype), list(each.shape), each.nbytes] for name, each in arrays.items()}


def _place(log: str) -> dict[str, Any]:
    """Find the last line of the task's own files in a traceback, and its function."""
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

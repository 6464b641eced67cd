"""Try a benchmark's task on this machine: draw its data, score made-up predictions.

`python -m worker.box.trial BENCHMARK.toml` reads the task in the folder beside it and writes one
JSON event a line: `box`, `drawn`, `guessed`, and `problem` for each rule that the task breaks. Exit
code 0 if it was tried, 2 for wrong usage, 4 where no box can be started.
"""

import hashlib
import json
import math
import re
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.benchmarks.quality import UNITS
from finishline.rules.errors import RuleError
from finishline.rules.trainings.protocol import CLASS_TYPES, LOGIT_TYPE, ArraySpec
from worker.box.check import check_box
from worker.box.race import Course
from worker.box.shipped import task_module
from worker.box.start import PACKAGE, BoxUnavailableError
from worker.box.task import TaskBox, TaskError

UNAVAILABLE, USAGE = 4, 2
MOST_SECONDS = 10.0
MOST_CONSTANTS = 16
TASK = "task.py"
_PLACE = re.compile(rf'File "{PACKAGE}/([\w./-]+)", line (\d+)')


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
    path = Path(file)
    try:
        benchmark = load_benchmark(path)
        state = check_box()
        _say("box", entries=state.entries, why=state.why)
        if state.entries == "off":
            raise BoxUnavailableError(state.why or "this host has no box")
        try:
            _try(path.with_suffix(""), benchmark)
        except TaskError as error:
            _problem(str(error), **_place(error.log))
    except (RuleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except BoxUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return UNAVAILABLE
    return 0


def _try(folder: Path, benchmark: Benchmark) -> None:
    first, other = secrets.token_bytes(32), secrets.token_bytes(32)
    drawn = _drawn(folder, benchmark, first)
    again = _drawn(folder, benchmark, first)
    if again.sha256 != drawn.sha256:
        _problem("two draws of one nonce differ", expected="equal bytes for equal nonces")
    is_other = _drawn(folder, benchmark, other).sha256 != drawn.sha256
    trainings = benchmark.trainings
    if not is_other and trainings is not None and trainings.trust == "ranked":
        expected = 'data that the nonce draws, or trust = "demonstration"'
        _problem("draws of different nonces are equal", expected=expected)
    if drawn.seconds > MOST_SECONDS:
        _problem(
            f"a draw takes {drawn.seconds:.1f} s",
            expected=f"at most {MOST_SECONDS:g} s",
        )
    _check_predictions(drawn.course.prediction)
    _say(
        "drawn",
        train=_listed(drawn.course.train),
        inputs=_listed(drawn.course.inputs),
        prediction=[drawn.course.prediction.dtype, list(drawn.course.prediction.shape)],
        seconds=drawn.seconds,
        is_drawn=is_other,
    )
    _guess(folder, benchmark, first)


def _drawn(folder: Path, benchmark: Benchmark, nonce: bytes) -> Draw:
    with TaskBox(task_module(folder, benchmark.benchmark_id)) as task:
        started = time.perf_counter()
        course = task.draw(nonce, facts={}, target=benchmark.target.value)
        return Draw(course, time.perf_counter() - started)


def _check_predictions(prediction: ArraySpec) -> None:
    is_class = prediction.dtype in CLASS_TYPES and len(prediction.shape) == 1
    is_logits = prediction.dtype == LOGIT_TYPE and len(prediction.shape) == 2
    if not is_class and not is_logits:
        _problem(
            f"predictions of {prediction.dtype} {list(prediction.shape)}",
            field="predictions",
            expected="uint8 or uint16 (n,), or float32 (n, classes)",
        )


def _guess(folder: Path, benchmark: Benchmark, nonce: bytes) -> None:
    """Score predictions without knowledge: constants and random ones."""
    target, best = benchmark.target, None
    with TaskBox(task_module(folder, benchmark.benchmark_id)) as task:
        course = task.draw(nonce, facts={}, target=target.value)
        for name, guess in guesses(course):
            qualities = task.score(guess.tobytes())
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
        _say("guessed", by=best[0], qualities=best[1])


def _better(found: Sequence[float], best: Sequence[float], benchmark: Benchmark) -> bool:
    higher = benchmark.target.direction == "higher"
    return max(found) > max(best) if higher else min(found) < min(best)


def guesses(course: Course) -> Iterator[tuple[str, Any]]:
    """Predictions of a package that has learnt nothing, with a word for each."""
    draw, spec = np.random.default_rng(0), course.prediction
    if spec.dtype not in CLASS_TYPES:
        yield "constant", np.zeros(spec.shape, spec.dtype)
        yield "random", draw.standard_normal(spec.shape).astype(spec.dtype)
        return
    classes = _classes(course)
    # The largest number is no item's class; a score that it stops makes failures of the host.
    for each in (*range(min(classes, MOST_CONSTANTS)), int(np.iinfo(spec.dtype).max)):
        yield f"constant ({each})", np.full(spec.shape, each, spec.dtype)
    yield "random", draw.integers(0, classes, spec.shape).astype(spec.dtype)


def _classes(course: Course) -> int:
    """Classes by the labels to learn from: the one array of whole numbers with one dimension."""
    labels = [each for each in course.train.values() if each.ndim == 1 and each.dtype.kind in "iu"]
    return max(2, min(256, max((int(each.max()) + 1 for each in labels), default=10)))


def _is_quality(value: float, unit: str) -> bool:
    scale = UNITS.get(unit)
    return math.isfinite(value) and (scale is None or 0 <= value <= scale)


def _listed(arrays: Any) -> dict[str, list[Any]]:
    return {name: [str(each.dtype), list(each.shape), each.nbytes] for name, each in arrays.items()}


def _place(log: str) -> dict[str, Any]:
    """The last line of the task's own files that a traceback names."""
    found = _PLACE.findall(log)
    return {"file": found[-1][0], "line": int(found[-1][1])} if found else {}


def _problem(message: str, **place: Any) -> None:
    told = {"file": TASK, "line": None, "field": "draw", "expected": None} | place
    _say("problem", message=message, **told)


def _say(kind: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind} | facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

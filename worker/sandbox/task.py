"""A task in its own sandbox: it draws the data of a run and scores predictions.

A task's module has `draw(nonce)`, which returns an object with `train` and `inputs` (dicts of
arrays), `predictions` (type and shape) and `score(predictions)`, the quality on each half. It may
also have `control(nonce)`, which makes answers of public data worthless.
"""

import importlib.util
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from finishline.rules.run import Ledger
from finishline.rules.verification.messages import TargetSpec
from reference_models import DataSetError
from reference_models.data import require_data
from worker.sandbox.channel import Array, Channel, ClosedError, DeadlineError
from worker.sandbox.course import Ask, Course, RaceResult
from worker.sandbox.inside.runner import FrameType
from worker.sandbox.order import RUNNER, AnyBackend, Order
from worker.sandbox.packages import Bind, requirements_of
from worker.sandbox.protocol import (
    ArraySpec,
    Limits,
    ProtocolError,
    Specs,
    TaskConversation,
    offsets,
    size_of,
)
from worker.sandbox.race import race
from worker.sandbox.start import Box

TASKER = RUNNER.with_name("tasker.py")
# An attempt needs many answers, and the tasker limits the processor seconds of each.
LIMITS = Limits(memory_bytes=1 << 30, cpu_factor=1000.0, run_seconds=10.0, processes=16)
ANSWER_SECONDS = 60.0
LARGEST_HEAD_BYTES = 64 << 10
LARGEST_PREDICTION_BYTES = 256 << 20


class TaskError(Exception):
    """A task's module failed. The message has the last line of its `log`."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class TaskModule:
    """A task's module: its folder, name, packages and data files (name in the sandbox, source)."""

    folder: Path
    packages: dict[str, str | None]
    module: str = "task"
    data: Mapping[str, Path] | None = None


class TaskBox:
    """A running task. Use it as a context, which kills its sandbox at the end."""

    def __init__(self, task: TaskModule, *, backend: AnyBackend = "bwrap") -> None:
        extra = [Bind(RUNNER, "/runner.py")]
        extra += [Bind(path, f"/data/{name}") for name, path in (task.data or {}).items()]
        order = Order(
            package=task.folder,
            module=task.module,
            packages=task.packages,
            limits=LIMITS,
            extra=extra,
            runner=TASKER,
            backend=backend,
        )
        self._box = Box(order)
        self._conversation = TaskConversation()
        self._channel = Channel(self._box.socket, self._conversation)

    def __enter__(self) -> "TaskBox":
        try:
            self._answer()
        except TaskError:
            self._box.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._box.kill()

    def draw(
        self,
        nonce: bytes,
        *,
        facts: Mapping[str, Any],
        target: float,
        lower_is_better: bool = False,
        control: bool = False,
        budget_seconds: float | None = None,
    ) -> Course:
        """Draw the data of a run or a control. Raises TaskError."""
        kind = FrameType.CONTROL if control else FrameType.DRAW
        body = self._ask(kind, nonce, FrameType.DRAWN)
        try:
            at = body.index(b"\n", 0, LARGEST_HEAD_BYTES)
            table, content = json.loads(body[:at]), memoryview(body)[at + 1 :].toreadonly()
            dtype, shape = table["prediction"]
            prediction = ArraySpec(dtype, tuple(shape))
            if prediction.nbytes > LARGEST_PREDICTION_BYTES:
                raise ValueError(f"predictions of more than {LARGEST_PREDICTION_BYTES} bytes")
            train, inputs = (_read_specs(table[name]) for name in ("train", "inputs"))
            return Course(
                task=facts,
                train=_read_arrays(train, content),
                inputs=_read_arrays(inputs, content[size_of(train) :]),
                prediction=prediction,
                score=self.score,
                target=target,
                lower_is_better=lower_is_better,
                budget_seconds=budget_seconds,
            )
        except Exception as error:  # An organiser's bytes fail in any way.
            raise TaskError(f"the task drew no arrays: {error}") from error

    def train(
        self,
        order: Order,
        *,
        nonce: bytes,
        seed: int,
        benchmark_id: str,
        target: TargetSpec,
        factors: Mapping[str, bool],
        control: bool = False,
        on_start: Callable[[Ledger], None] = lambda _: None,
        on_ask: Callable[[Ask], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> RaceResult:
        """Train a code submission on drawn data. Its own failure is a value.

        Raises TaskError, or BoxUnavailableError if its sandbox cannot start.
        """
        facts = {
            "benchmark": benchmark_id,
            "threads": order.limits.threads,
            "device": "cuda" if order.gpus else "cpu",
            "factors": dict(factors),
        }
        course = self.draw(
            nonce,
            facts=facts,
            target=target.value,
            lower_is_better=target.direction == "lower",
            control=control,
            budget_seconds=target.budget_seconds,
        )
        return race(order, course, seed=seed, on_start=on_start, on_ask=on_ask, stop=stop)

    def score(self, predictions: bytes) -> tuple[float, float]:
        """Return the quality of predictions on each half. Raises TaskError."""
        body = self._ask(FrameType.SCORE, predictions, FrameType.SCORED)
        try:
            first, second = json.loads(bytes(body))
            return float(first), float(second)
        except Exception as error:
            raise TaskError(f"the task returned no two numbers: {error}") from error

    def last_error(self) -> TaskError | None:
        """Return the error with which the module failed to score predictions, if any."""
        until = time.perf_counter() + 1.0  # A second thread reads the log.
        while not (log := self._box.log_tail()).endswith("\n") and time.perf_counter() < until:
            time.sleep(0.01)
        return _error_in(log) if log.strip() else None

    def _ask(self, kind: FrameType, body: bytes, answer: FrameType) -> bytearray:
        self._conversation.expected = answer
        try:
            self._channel.send(kind, body, deadline=time.perf_counter() + ANSWER_SECONDS)
        except (ClosedError, DeadlineError):
            raise self._failed() from None
        return self._answer()

    def _answer(self) -> bytearray:
        try:
            return self._channel.receive(deadline=time.perf_counter() + ANSWER_SECONDS).body
        except DeadlineError:
            late = f"the task's module gave no answer in {ANSWER_SECONDS:g} s"
            raise TaskError(late, log=self._box.log_tail()) from None
        except ClosedError:
            raise self._failed() from None
        except ProtocolError as error:
            message = f"the task broke the protocol: {error}"
            raise TaskError(message, log=self._box.log_tail()) from None

    def _failed(self) -> TaskError:
        self._box.exit_status(wait_seconds=1.0)
        log, killed_by = self._box.log_tail(), self._box.killed_by()
        if killed_by is not None:
            return TaskError(f"the task's sandbox was ended from outside by {killed_by}", log=log)
        return _error_in(log)


def _error_in(log: str) -> TaskError:
    lines = log.strip().splitlines()
    message = f"the task's module failed: {lines[-1] if lines else 'it ended in silence'}"
    return TaskError(message, log=log)


def _read_specs(table: Mapping[str, Any]) -> Specs:
    return {str(name): ArraySpec(dtype, tuple(shape)) for name, (dtype, shape) in table.items()}


def _read_arrays(specs: Specs, content: memoryview) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, at in offsets(specs).items():
        dtype, shape = specs[name].dtype, specs[name].shape
        found[name] = np.frombuffer(content, dtype, math.prod(shape), at).reshape(shape)
    return found


def task_module(folder: Path, benchmark_id: str, data_dir: Path) -> TaskModule:
    """Return the task in a folder. Raises TaskError if its module or its data are missing."""
    if not (folder / "task.py").is_file():
        raise TaskError(f"benchmark {benchmark_id} has no task for code submissions")
    return TaskModule(
        folder=folder.resolve(),
        packages=dict(requirements_of(["numpy"])),
        data={path.name: path.resolve() for path in _data_files(benchmark_id, data_dir)},
    )


def _data_files(benchmark_id: str, data_dir: Path) -> list[Path]:
    """Find the data of a shipped task: in an installed package, or as published in `data_dir`."""
    if benchmark_id == "digits":
        found = importlib.util.find_spec("sklearn")
        if found is None or found.origin is None:
            raise TaskError("the task's data need the package sklearn, which is not installed")
        return [Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"]
    if benchmark_id != "fashion":
        return []
    try:
        return require_data(benchmark_id, data_dir, {}, hashed=True)
    except DataSetError as error:
        raise TaskError(str(error)) from error

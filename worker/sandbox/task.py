"""A task in a box of its own: it draws the data of a run and scores predictions.

A task's module has `draw(nonce)`, which returns an object with `train` and `inputs` (dicts of
arrays), `predictions` (type and shape) and `score(predictions)`, the quality on each half. A
module with `control(nonce)` returns such an object for which answers of public data are worthless.
"""

import importlib.util
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reference_models import DataSetError
from reference_models.data import require_data
from worker.sandbox.channel import Array, Channel, ClosedError, DeadlineError
from worker.sandbox.course import Course
from worker.sandbox.order import RUNNER, AnyBackend, Order
from worker.sandbox.packages import Bind, requirements_of
from worker.sandbox.protocol import (
    ArraySpec,
    FrameType,
    Limits,
    ProtocolError,
    Specs,
    TaskConversation,
    offsets,
)
from worker.sandbox.start import Box

TASKER = RUNNER.with_name("tasker.py")
# The tasker has a limit to the processor seconds of each answer, of which an attempt needs many.
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
    """A task's module: its folder, name, packages and data files (name in the box, source)."""

    folder: Path
    packages: dict[str, str | None]
    module: str = "task"
    data: Mapping[str, Path] | None = None


class TaskBox:
    """A running task. Use it as a context. The box is killed at its end."""

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
        """Draw the data of a run, or those of a control. Raises TaskError."""
        kind = FrameType.CONTROL if control else FrameType.DRAW
        body = self._ask(kind, nonce, FrameType.DRAWN)
        try:
            at = body.index(b"\n", 0, LARGEST_HEAD_BYTES)
            table, content = json.loads(body[:at]), memoryview(body)[at + 1 :].toreadonly()
            dtype, shape = table["prediction"]
            prediction = ArraySpec(dtype, tuple(shape))
            if prediction.nbytes > LARGEST_PREDICTION_BYTES:
                raise ValueError(f"predictions of more than {LARGEST_PREDICTION_BYTES} bytes")
            groups = {name: read_specs(table[name]) for name in ("train", "inputs")}
            arrays = read_arrays({**_named("train", groups), **_named("inputs", groups)}, content)
        except Exception as error:  # An organiser's bytes fail in any way.
            raise TaskError(f"the task drew no arrays: {error}") from error
        return Course(
            task=facts,
            train={name: arrays["train", name] for name in groups["train"]},
            inputs={name: arrays["inputs", name] for name in groups["inputs"]},
            prediction=prediction,
            score=self.score,
            target=target,
            lower_is_better=lower_is_better,
            budget_seconds=budget_seconds,
        )

    def score(self, predictions: bytes) -> tuple[float, float]:
        """The quality of predictions on each half. Raises TaskError."""
        body = self._ask(FrameType.SCORE, predictions, FrameType.SCORED)
        try:
            first, second = json.loads(bytes(body))
            return float(first), float(second)
        except Exception as error:
            raise TaskError(f"the task returned no two numbers: {error}") from error

    def last_error(self) -> TaskError | None:
        """The error with which the module failed to score predictions. None without one."""
        until = time.perf_counter() + 1.0  # The log comes by a way of its own.
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


def _named(group: str, groups: Mapping[str, Specs]) -> dict[tuple[str, str], ArraySpec]:
    return {(group, name): spec for name, spec in groups[group].items()}


def read_specs(table: Mapping[str, Any]) -> dict[str, ArraySpec]:
    """Types and shapes of arrays by name. Raises ValueError or TypeError."""
    return {str(name): ArraySpec(dtype, tuple(shape)) for name, (dtype, shape) in table.items()}


def read_arrays(
    specs: Mapping[tuple[str, str], ArraySpec], content: memoryview
) -> dict[tuple[str, str], Array]:
    """Arrays that lie one after the other, aligned to 64 bytes. Raises ValueError."""
    found = {}
    for name, at in offsets(specs).items():  # type: ignore[arg-type]
        spec = specs[name]  # type: ignore[index]
        count = spec.nbytes // np.dtype(spec.dtype).itemsize
        found[name] = np.frombuffer(content, spec.dtype, count, at).reshape(spec.shape)
    return found  # type: ignore[return-value]


def task_module(folder: Path, benchmark_id: str, data_dir: Path) -> TaskModule:
    """The task in a folder. Raises TaskError without a module, or without its data."""
    if not (folder / "task.py").is_file():
        raise TaskError(f"benchmark {benchmark_id} has no task for code submissions")
    return TaskModule(
        folder=folder.resolve(),
        packages=dict(requirements_of(["numpy"])),
        data={path.name: path.resolve() for path in _data_files(benchmark_id, data_dir)},
    )


def _data_files(benchmark_id: str, data_dir: Path) -> list[Path]:
    """The data of a shipped task: in a package of this host, or in its data folder as published."""
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

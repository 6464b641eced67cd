"""One run of a package in a box: the protocol's steps, the clock, and the run's rows.

The clock starts before the first byte of `go` and stops at the last byte of the predictions that
reach the target. It never pauses: evaluations, copies and late imports count.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from finishline.rules.scoring.run import Ledger, Phase
from finishline.rules.trainings.protocol import (
    INLINE_LIMIT_BYTES,
    ArraySpec,
    Conversation,
    FrameType,
    ProtocolError,
)
from worker.box.channel import Array, Channel, ClosedError, DeadlineError, seal, specs_of
from worker.box.start import Box, Order
from worker.box.watch import MemoryWatch

EXIT_SECONDS = 5.0
RaceStatus = Literal["reached", "not_reached", "failed", "cancelled"]
# The runner's exit status, and the failure that it stands for.
EXITS = {
    3: ("entry_import_failed", "the package could not be imported"),
    4: ("entry_died", "the package raised an error"),
    5: ("protocol_broken", "predict returned something else than predictions"),
}


@dataclass(frozen=True)
class Course:
    """A task as a box meets it: public facts, the data of this run, and a way to score.

    `score` takes predictions as bytes and returns the quality on each half; labels stay in it.
    `task` has names that `prepare` gets beside shapes and prediction.
    """

    task: Mapping[str, Any]
    train: Mapping[str, Array]
    inputs: Mapping[str, Array]
    prediction: ArraySpec
    score: Callable[[bytes], tuple[float, float]]
    target: float
    lower_is_better: bool = False

    def is_reached(self, quality: float) -> bool:
        """Whether a quality is at the target or better."""
        return quality <= self.target if self.lower_is_better else quality >= self.target


@dataclass(frozen=True)
class Ask:
    """An evaluation: seconds on the entry clock, and the quality on both halves."""

    number: int
    seconds: float
    quality: float
    second_half: float
    ledger: Ledger


@dataclass(frozen=True)
class RaceResult:
    """A run in a box. `code` names a failure; `seconds` is the time to the target."""

    status: RaceStatus
    asks: tuple[Ask, ...]
    ledger: Ledger
    seconds: float | None = None
    code: str | None = None
    message: str | None = None
    log_tail: str = ""
    peak_bytes: int = 0
    hello: Mapping[str, Any] = field(default_factory=dict)


class _StopError(Exception):
    """The run is over for a reason outside the protocol."""

    def __init__(self, code: str | None, message: str) -> None:
        self.code = code
        super().__init__(message)


def race(
    order: Order,
    course: Course,
    *,
    seed: int,
    on_ask: Callable[[Ask], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> RaceResult:
    """Run a package once in a box of its own; a failure is a value. No process is left.

    Raises BoxUnavailableError if no box can be started.
    """
    data = seal(course.train)
    box = Box(order)
    runner = _Runner(box, course, on_ask=on_ask, stop=stop)
    watch = MemoryWatch(
        box.pid, limit_bytes=order.limits.memory_bytes, exceeded=runner.exceed_memory
    )
    try:
        runner.run(seed, data)
    finally:
        watch.stop()
        box.kill()
        os.close(data)
    return runner.result(peak_bytes=watch.peak_bytes)


class _Runner:
    """The worker's side of a conversation."""

    def __init__(
        self,
        box: Box,
        course: Course,
        *,
        on_ask: Callable[[Ask], None],
        stop: Callable[[], bool],
    ) -> None:
        self._box, self._course, self._limits = box, course, box.limits
        self._on_ask, self._stop = on_ask, stop
        self._conversation = Conversation(
            course.prediction.nbytes, max_evaluations=box.limits.max_evaluations
        )
        self._channel = Channel(box.socket, self._conversation, look=self._look)
        self._ledger = Ledger()
        self._last = box.started_at
        self._asks: list[Ask] = []
        self._started_at: float | None = None
        self._over_memory: int | None = None
        self._hello: Mapping[str, Any] = {}
        self._status: RaceStatus = "failed"
        self._seconds: float | None = None
        self._code: str | None = None
        self._message: str | None = None

    def exceed_memory(self, used: int) -> None:
        """Note that the box holds too much memory; the next look ends the run."""
        self._over_memory = used

    def run(self, seed: int, data: int) -> None:
        """Hold the conversation to its end."""
        try:
            self._hold(seed, data)
        except _StopError as error:
            self._end("cancelled" if error.code is None else "failed", error.code, str(error))
        except ProtocolError as error:
            self._end("failed", "protocol_broken", str(error))
        except DeadlineError:
            self._end("failed", *self._late())

    def _hold(self, seed: int, data: int) -> None:
        try:
            self._prepare()
            self._train(seed, data)
        except ClosedError:
            self._end("failed", *self._death())

    def result(self, *, peak_bytes: int) -> RaceResult:
        """The run as it ended."""
        return RaceResult(
            status=self._status,
            asks=tuple(self._asks),
            ledger=self._ledger,
            seconds=self._seconds,
            code=self._code,
            message=self._message,
            log_tail=self._box.log_tail(),
            peak_bytes=peak_bytes,
            hello=self._hello,
        )

    def _prepare(self) -> None:
        frame = self._channel.receive(deadline=self._box.started_at + self._limits.hello_seconds)
        self._stamp(Phase.INIT, frame.at)
        self._hello = _read_hello(frame.body)
        deadline = frame.at + self._limits.prepare_clock_seconds
        body = json.dumps(public_task(self._course)).encode()
        self._channel.send(FrameType.TASK, body, deadline=deadline)
        frame = self._channel.receive(deadline=deadline)
        self._stamp(Phase.WARMUP, frame.at)

    def _train(self, seed: int, data: int) -> None:
        go = {
            "seed": seed,
            "shapes": {
                name: [one.dtype, list(one.shape)]
                for name, one in specs_of(self._course.train).items()
            },
            "bytes": os.fstat(data).st_size,
        }
        body = json.dumps(go).encode()
        self._started_at = self._last = time.perf_counter()
        self._channel.send(FrameType.GO, body, deadline=self._deadline(), descriptor=data)
        while True:
            frame = self._channel.receive(deadline=self._deadline())
            self._stamp(Phase.TRAIN, frame.at)
            if frame.kind is FrameType.DONE:
                self._end("not_reached", None, None)
                return
            if self._evaluate():
                return

    def _evaluate(self) -> bool:
        """Answer an ask with the inputs and score the predictions: whether the target is met."""
        self._send_inputs()
        frame = self._channel.receive(deadline=self._deadline())
        self._stamp(Phase.EVAL, frame.at)
        quality, second = self._course.score(bytes(frame.body))
        assert self._started_at is not None  # noqa: S101
        ask = Ask(
            number=self._conversation.asks,
            seconds=frame.at - self._started_at,
            quality=quality,
            second_half=second,
            ledger=self._ledger,
        )
        self._asks.append(ask)
        self._on_ask(ask)
        if not self._course.is_reached(quality):
            return False
        self._seconds = ask.seconds
        self._end("reached", None, None)
        return True

    def _send_inputs(self) -> None:
        deadline = self._deadline()
        if self._conversation.asks > 1:
            self._channel.send(FrameType.INPUTS, deadline=deadline)
            return
        number = seal(self._course.inputs)
        try:
            size = os.fstat(number).st_size
            if size > INLINE_LIMIT_BYTES:
                self._channel.send(FrameType.INPUTS, deadline=deadline, descriptor=number)
            else:
                self._channel.send(FrameType.INPUTS, os.pread(number, size, 0), deadline=deadline)
        finally:
            os.close(number)

    def _deadline(self) -> float:
        """The end of the next frame: silence ends a run, and so does its own limit."""
        assert self._started_at is not None  # noqa: S101
        silent_until = time.perf_counter() + self._limits.silence_seconds
        return min(silent_until, self._started_at + self._limits.run_seconds)

    def _look(self) -> None:
        if self._over_memory is not None:
            used, most = self._over_memory >> 20, self._limits.memory_bytes >> 20
            raise _StopError("memory_limit", f"the package held {used} of {most} MiB of memory")
        if self._box.log_is_full:
            raise _StopError(
                "log_limit", f"the package wrote more than {self._limits.log_bytes >> 10} KiB"
            )
        if self._stop():
            raise _StopError(None, "the run was cancelled")

    def _late(self) -> tuple[str, str]:
        limits = self._limits
        if self._started_at is None:
            return (
                "prepare_time_limit",
                f"the package was not ready after {limits.prepare_clock_seconds:g} s",
            )
        if time.perf_counter() >= self._started_at + limits.run_seconds:
            return "run_time_limit", f"the run took more than {limits.run_seconds:g} s"
        return "silence_time_limit", f"the package was silent for {limits.silence_seconds:g} s"

    def _death(self) -> tuple[str, str]:
        status = self._box.exit_status(wait_seconds=EXIT_SECONDS)
        self._look()
        known = EXITS.get(status if status is not None else -1)
        return known or ("entry_died", f"the package's process ended with exit status {status}")

    def _stamp(self, phase: Phase, at: float) -> None:
        self._ledger = self._ledger.plus(phase, at - self._last)
        self._last = at

    def _end(self, status: RaceStatus, code: str | None, message: str | None) -> None:
        self._status, self._code, self._message = status, code, message


def public_task(course: Course) -> dict[str, Any]:
    """The facts that a package's `prepare` gets, all known before anything is drawn."""
    return {
        **course.task,
        "shapes": {name: list(one.shape) for name, one in specs_of(course.train).items()},
        "dtypes": {name: one.dtype for name, one in specs_of(course.train).items()},
        "inputs": {
            name: [one.dtype, list(one.shape)] for name, one in specs_of(course.inputs).items()
        },
        "prediction": [course.prediction.dtype, list(course.prediction.shape)],
        "target": course.target,
    }


def _read_hello(body: bytearray) -> Mapping[str, Any]:
    try:
        hello = json.loads(bytes(body))
    except ValueError:
        raise ProtocolError("hello is no JSON") from None
    if not isinstance(hello, dict) or hello.get("protocol") != 1:
        raise ProtocolError("hello names another protocol; expected 1")
    return hello

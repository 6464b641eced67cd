"""One run of a code submission in a sandbox: the protocol's steps, the clock, and the run's rows.

The clock starts before the first byte of `go` and stops at the last byte of the predictions that
reach the target. It runs through evaluations, copies and late imports. Another thread scores
predictions while this thread listens. The first ask at the target ends the run and fixes the
result. A budget ends the run when it is used up, and the last ask whose predictions arrived by
then counts.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from finishline.rules.run import Ledger, Phase
from worker.sandbox.channel import Channel, ClosedError, DeadlineError, listed, seal
from worker.sandbox.course import Ask, Course, RaceResult, RaceStatus, Scorer, public_task
from worker.sandbox.inside.runner import FrameType
from worker.sandbox.order import BoxUnavailableError, Order
from worker.sandbox.processors import quiet_processors, waking_first
from worker.sandbox.protocol import INLINE_LIMIT_BYTES, VERSION, Conversation, ProtocolError
from worker.sandbox.start import Box
from worker.sandbox.usage import MemoryWatch, ProcessorTime, ProcessorUse, processor_time

EXIT_SECONDS = 5.0
SHARE_SECONDS = 0.5  # Between two readings, which cost the worker processor time.
# Failures by the runner's exit status.
EXITS = {
    3: ("entry_import_failed", "the code could not be imported"),
    4: ("entry_died", "the code raised an error"),
    5: ("protocol_broken", "predict returned something else than predictions"),
}


class _EndError(Exception):
    """The run has failed, or without a code it was cancelled."""

    def __init__(self, code: str | None, message: str) -> None:
        self.code = code
        super().__init__(message)


def race(
    order: Order,
    course: Course,
    *,
    seed: int,
    on_start: Callable[[Ledger], None] = lambda _: None,
    on_ask: Callable[[Ask], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> RaceResult:
    """Run a code submission once in its own sandbox, and leave no process. A failure is a value.

    The sandbox gets one processor for each thread of its limits, or all processors of the host.
    `on_start` is called with the ledger just before the clock starts. `on_ask` is called in order,
    by the thread that scores. Raises BoxUnavailableError if the sandbox cannot start, and errors of
    `score` or `on_ask`.
    """
    with (
        quiet_processors(order.limits.threads) as processors,
        Box(replace(order, processors=processors)) as box,
        Scorer(ended=box.stop) as scorer,
    ):
        runner = _Runner(box, course, scorer, on_start, on_ask, stop)
        with (
            waking_first(),
            MemoryWatch(
                box.pid, limit_bytes=order.limits.memory_bytes, exceeded=runner.exceed_memory
            ) as watch,
        ):
            runner.run(seed)
            box.kill()
        runner.finish()
        return runner.result(peak_bytes=watch.peak_bytes)


@dataclass
class _Runner:
    """The worker's side of a conversation."""

    box: Box
    course: Course
    scorer: Scorer
    on_start: Callable[[Ledger], None]
    on_ask: Callable[[Ask], None]
    stop: Callable[[], bool]
    ledger: Ledger = field(default_factory=Ledger)
    asks: list[Ask] = field(default_factory=list)
    started_at: float | None = None
    before: ProcessorTime = field(default_factory=lambda: ProcessorTime(0.0, 0.0))
    share: float | None = None
    share_at: float = 0.0
    preparing: ProcessorUse | None = None
    over_memory: int | None = None
    status: RaceStatus = "failed"
    code: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        self.limits = self.box.limits
        self.last = self.box.started_at
        self.conversation = Conversation(
            self.course.prediction.nbytes, max_evaluations=self.limits.max_evaluations
        )
        self.channel = Channel(self.box.socket, self.conversation, look=self._look)

    def exceed_memory(self, used: int) -> None:
        """End a run that holds too much memory."""
        self.over_memory = used
        self.box.stop()

    def run(self, seed: int) -> None:
        """Hold the conversation to its end."""
        try:
            try:
                self._prepare()
                self._train(seed)
            except ClosedError:
                self._end("failed", *self._death())
        except _EndError as error:
            self._end("cancelled" if error.code is None else "failed", error.code, str(error))
        except ProtocolError as error:
            self._end("failed", "protocol_broken", str(error))
        except DeadlineError:
            has_budget = self.started_at is not None and self.course.budget_seconds is not None
            if has_budget and time.perf_counter() >= self._end_of_run():
                self._end("not_reached", None, None)
            else:
                self._end("failed", *self._late())

    def finish(self) -> None:
        """Wait for the open scores."""
        try:
            self.scorer.finish(stop=self.stop)
        except ProtocolError as error:
            self._end("failed", "protocol_broken", str(error))

    def result(self, *, peak_bytes: int) -> RaceResult:
        """Return the run up to the ask that reached the target, or with a budget the last ask."""
        usage, seconds = self.box.usage(), None
        has_ended = self.course.budget_seconds is not None and self.status == "not_reached"
        if self.asks and (has_ended or self.course.is_reached(self.asks[-1].quality)):
            self._end("reached", None, None)
            self.ledger, seconds = self.asks[-1].ledger, self.asks[-1].seconds
        return RaceResult(
            status=self.status,
            asks=tuple(self.asks),
            ledger=self.ledger,
            seconds=seconds,
            code=self.code,
            message=self.message,
            log_tail=self.box.log_tail(),
            peak_bytes=usage.peak_bytes or peak_bytes,
            processor_share=self.share,
        )

    def _prepare(self) -> None:
        began = self._receive_hello()
        self._stamp(Phase.INIT, began)
        deadline = began + self.limits.prepare_clock_seconds
        body = json.dumps(public_task(self.course)).encode()
        self.preparing = ProcessorUse(
            self.box.pid, counted=lambda: self.box.usage().processor_seconds
        )
        self.channel.send(FrameType.TASK, body, deadline=deadline)
        frame = self.channel.receive(deadline=deadline)
        self._look()
        self.preparing = None
        self._stamp(Phase.WARMUP, frame.at)

    def _receive_hello(self) -> float:
        """Read the first frame. The submission's code runs after it: a failure is the host's."""
        deadline = self.box.started_at + self.limits.hello_seconds
        try:
            frame = self.channel.receive(deadline=deadline)
            _check_hello(frame.body)
            return frame.at
        except (ClosedError, DeadlineError, ProtocolError):
            self.box.exit_status(wait_seconds=EXIT_SECONDS)
            self._look()
            raise BoxUnavailableError(self.box.why_not_started()) from None

    def _train(self, seed: int) -> None:
        data, inputs = seal(self.course.train), seal(self.course.inputs)
        try:
            self._go(seed, data)
            while True:
                frame = self.channel.receive(deadline=self._deadline())
                self._stamp(Phase.TRAIN, frame.at)
                if frame.kind is FrameType.DONE:
                    return self._end("not_reached", None, None)
                self._evaluate(inputs)
        finally:
            os.close(data)
            os.close(inputs)

    def _go(self, seed: int, data: int) -> None:
        shapes, size = listed(self.course.train), os.fstat(data).st_size
        body = json.dumps({"seed": seed, "shapes": shapes, "bytes": size}).encode()
        self.before = processor_time(self.box.pid)
        self.on_start(self.ledger)  # Starts the server's clock of the run.
        self.channel.refuse_early()  # Last: bytes up to here were sent without the data.
        self.started_at = self.last = time.perf_counter()
        self.channel.send(FrameType.GO, body, deadline=self._deadline(), descriptor=data)

    def _evaluate(self, inputs: int) -> None:
        """Answer an ask with the inputs, stamp the predictions, and have them scored."""
        self._send_inputs(inputs)
        frame = self.channel.receive(deadline=self._deadline())
        if frame.at > self._end_of_run():
            raise DeadlineError
        self._stamp(Phase.EVAL, frame.at)
        assert self.started_at is not None  # noqa: S101
        ask = partial(
            Ask,
            number=self.conversation.asks,
            seconds=frame.at - self.started_at,
            ledger=self.ledger,
        )
        if self.share is None or frame.at - self.share_at > SHARE_SECONDS:
            self.share = processor_time(self.box.pid).share_since(self.before)
            self.share_at = frame.at
        # Last: a score may end the run and its processes.
        self.scorer.put(partial(self._score, ask, bytes(frame.body)))

    def _score(self, made: Callable[..., Ask], predictions: bytes) -> bool:
        """Score an ask. Return whether it ends the run."""
        is_float = self.course.prediction.dtype == "float32"
        if is_float and not np.isfinite(np.frombuffer(predictions, np.float32)).all():
            raise ProtocolError("the predictions hold NaN or an infinity; expected finite numbers")
        quality, second = self.course.score(predictions)
        if not (math.isfinite(quality) and math.isfinite(second)):
            raise ProtocolError("the predictions have no quality: it is no finite number")
        digest = hashlib.sha256(predictions).hexdigest()
        ask = made(quality=quality, second_half=second, predictions_sha256=digest)
        self.asks.append(ask)
        self.on_ask(ask)
        return self.course.is_reached(quality)

    def _send_inputs(self, inputs: int) -> None:
        deadline, size = self._deadline(), os.fstat(inputs).st_size
        if self.conversation.asks > 1:
            self.channel.send(FrameType.INPUTS, deadline=deadline)
        elif size > INLINE_LIMIT_BYTES:
            self.channel.send(FrameType.INPUTS, deadline=deadline, descriptor=inputs)
        else:
            self.channel.send(FrameType.INPUTS, os.pread(inputs, size, 0), deadline=deadline)

    def _deadline(self) -> float:
        """Return when the next frame is late: silence ends a run, and so does its own limit."""
        return min(time.perf_counter() + self.limits.silence_seconds, self._end_of_run())

    def _end_of_run(self) -> float:
        assert self.started_at is not None  # noqa: S101
        limits = (self.limits.run_seconds, self.course.budget_seconds)
        return self.started_at + min(each for each in limits if each is not None)

    def _look(self) -> None:
        if self.over_memory is not None:
            used, most = self.over_memory >> 20, self.limits.memory_bytes >> 20
            raise _EndError("memory_limit", f"the code held {used} of {most} MiB of memory")
        if self.box.log_is_full:
            kib = self.limits.log_bytes >> 10
            raise _EndError("log_limit", f"the code wrote more than {kib} KiB")
        if self.stop():
            raise _EndError(None, "the run was cancelled")
        if self.preparing is not None:
            seconds, allowed = self.preparing.seconds(), self.limits.prepare_seconds
            if seconds > allowed:
                raise _EndError(
                    "prepare_time_limit",
                    f"the code used {seconds:.2f} s of the processor to prepare; "
                    f"expected at most {allowed:g} s",
                )

    def _late(self) -> tuple[str, str]:
        limits = self.limits
        if self.started_at is None:
            seconds = limits.prepare_clock_seconds
            return "prepare_time_limit", f"the code was not ready after {seconds:g} s"
        if time.perf_counter() >= self.started_at + limits.run_seconds:
            return "run_time_limit", f"the run took more than {limits.run_seconds:g} s"
        return "silence_time_limit", f"the code was silent for {limits.silence_seconds:g} s"

    def _death(self) -> tuple[str, str]:
        status = self.box.exit_status(wait_seconds=EXIT_SECONDS)
        self._look()
        if self.box.usage().was_killed:
            most = self.limits.memory_bytes >> 20
            return "memory_limit", f"the code held more than {most} MiB of memory"
        if status is None:
            return "entry_died", "the code closed its connection to the worker"
        killed_by = self.box.killed_by()
        if killed_by is not None:
            return "child_died", f"the sandbox was ended from outside by {killed_by}"
        unknown = ("entry_died", f"the code's process ended with exit status {status}")
        return EXITS.get(status, unknown)

    def _stamp(self, phase: Phase, at: float) -> None:
        self.ledger = self.ledger.plus(phase, at - self.last)
        self.last = at

    def _end(self, status: RaceStatus, code: str | None, message: str | None) -> None:
        self.status, self.code, self.message = status, code, message


def _check_hello(body: bytearray) -> None:
    try:
        hello = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise ProtocolError("hello is no JSON") from None
    version = hello.get("protocol") if isinstance(hello, dict) else None
    if type(version) is not int or version != VERSION:
        raise ProtocolError(f"hello names another protocol; expected {VERSION}")

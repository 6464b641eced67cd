"""Events on their way to the server: posted by a thread, so that the training never waits.

The server compares a report with the moments at which its events came. So an evaluation, the start
of a run and that of its clock are posted at once; other events wait for one of these.
"""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from finishline.rules.verification.messages import BatchAnswer, EvaluationBatch, ReplayEvent
from finishline.rules.verification.report_stream import PREPARATION
from worker.link import RefusedError, UnreachableError
from worker.training import StopReason

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.5
BATCH_LIMIT = 500

Post = Callable[[EvaluationBatch], BatchAnswer]


class Outbox:
    """Posts events in the order they were put, and a heartbeat when there are none.

    `stop_reason` is None until the server wants the replay to stop or the lease is gone. Leaving
    the `with` block posts the rest.
    """

    def __init__(self, post: Post, *, heartbeat_seconds: float) -> None:
        self.stop_reason: StopReason | None = None
        self._post = post
        self._heartbeat_seconds = heartbeat_seconds
        self._waiting: list[ReplayEvent] = []
        self._urgent = False
        self._preparing = True
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def put(self, event: ReplayEvent) -> None:
        """Queue an event; returns at once."""
        with self._changed:
            self._waiting.append(event)
            self._urgent = self._is_urgent(event) or self._urgent
            self._changed.notify()

    def _is_urgent(self, event: ReplayEvent) -> bool:
        if event.kind != "phase":
            self._preparing = event.kind == "run_started"
            return event.kind != "run_finished"
        starts_clock = self._preparing and event.phase not in PREPARATION
        self._preparing = self._preparing and not starts_clock
        return starts_clock

    def _work(self) -> None:
        while self.stop_reason != "fenced":
            batch, last = self._next_batch()
            if last and not batch.events:
                return
            self._send(batch)

    def _next_batch(self) -> tuple[EvaluationBatch, bool]:
        """Events to send, none for a heartbeat, and whether the outbox is closing."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._closing, timeout=self._heartbeat_seconds
            )
            if self._waiting:  # More usually follows soon: one post for all of it.
                self._changed.wait_for(
                    lambda: self._closing or self._urgent, timeout=GATHER_SECONDS
                )
            events = self._waiting[:BATCH_LIMIT]
            del self._waiting[:BATCH_LIMIT]
            self._urgent = self._urgent and bool(self._waiting)
            return EvaluationBatch(events=events), self._closing

    def _send(self, batch: EvaluationBatch) -> None:
        try:
            answer = self._post(batch)
        except (RefusedError, UnreachableError, ValueError) as error:
            log.warning("the attempt is given up: %s", error)
            self.stop_reason = "fenced"
            return
        if not answer.proceed and self.stop_reason is None:
            self.stop_reason = "time_limit" if answer.reason == "time_limit" else "cancelled"

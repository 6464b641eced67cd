"""Events of an attempt: numbered, and posted by a thread while the training goes on.

The server compares a report with the moments at which its events came. So it gets an evaluation,
the start of a run and the start of its clock at once, even while another post waits for its answer.
Other events follow with such a post.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, Self

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.verification.messages import (
    BatchAnswer,
    EvaluationBatch,
    EventKind,
    ReplayEvent,
)
from finishline.rules.verification.report_check import PREPARATION

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.5
BATCH_LIMIT = 500
MOST_BESIDE = 3  # Extra posts at a time. The server has few places for workers.

EventSink = Callable[[ReplayEvent], None]
StopReason = Literal["cancelled", "time_limit", "fenced", "worker_stopped"]
Post = Callable[[EvaluationBatch], BatchAnswer]


class Announcer:
    """Makes the events of an attempt. `sequence` counts from 0 without gaps."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._numbers = itertools.count()

    def announce(self, run: int, kind: EventKind, **facts: Any) -> None:
        """Tell an event of a run, with the facts of its kind."""
        self._sink(ReplayEvent(sequence=next(self._numbers), run=run, kind=kind, **facts))


class Outbox:
    """Posts events in order, and heartbeats in between.

    `stop_reason` is None until the server wants the replay to stop or the lease is gone. Leaving
    the `with` block posts the rest. `hurry` posts urgent events once, while the previous post still
    waits for its answer. They are posted again in their turn.
    """

    def __init__(self, post: Post, *, heartbeat_seconds: float, hurry: Post | None = None) -> None:
        self.stop_reason: StopReason | None = None
        self._post = post
        self._hurry = hurry
        self._waiting: list[ReplayEvent] = []
        self._unanswered: list[ReplayEvent] | None = None  # None between posts.
        self._urgent = threading.Event()
        self._preparing = True
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            "outbox", heartbeat_seconds, self._post_waiting, last_step=True
        )
        self._beside = ThreadPoolExecutor(MOST_BESIDE, thread_name_prefix="outbox-beside")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._urgent.set()
        self._beside.shutdown(cancel_futures=True)
        self._thread.stop(join_seconds=None)  # The last post is retried as long as the lease.

    def put(self, event: ReplayEvent) -> None:
        """Queue an event. Returns at once."""
        with self._lock:
            self._waiting.append(event)
            if self._is_urgent(event):
                self._urgent.set()
                if self._unanswered is not None:
                    self._beside.submit(self._post_beside)
        self._thread.wake()

    def _is_urgent(self, event: ReplayEvent) -> bool:
        if event.kind != "phase":
            self._preparing = event.kind == "run_started"
            return event.kind != "run_finished"
        starts_clock = self._preparing and event.phase not in PREPARATION
        self._preparing = self._preparing and not starts_clock
        return starts_clock

    def _post_waiting(self) -> None:
        """Post the waiting events, or a heartbeat. At the close post all of them."""
        if self._waiting:  # More usually follows soon: one post for all of it.
            self._urgent.wait(GATHER_SECONDS)
        elif self._thread.was_woken:
            return  # The post before had those events too, or all is posted at the close.
        while True:
            with self._lock:
                events = self._waiting[:BATCH_LIMIT]
                del self._waiting[:BATCH_LIMIT]
                is_last = not self._waiting
                if is_last and not self._thread.is_stopping:
                    self._urgent.clear()
                self._unanswered = events
            self._send(EvaluationBatch(events=events))
            with self._lock:
                self._unanswered = None
            if self.stop_reason == "fenced":
                self._thread.end()
                return
            if is_last:
                return

    def _post_beside(self) -> None:
        """Post all unanswered events, if a post is still under way."""
        with self._lock:
            events = [] if self._unanswered is None else [*self._unanswered, *self._waiting]
        if events and self._hurry is not None:
            with suppress(FinishlineError, ValueError):  # They are posted in their turn.
                self._hurry(EvaluationBatch(events=events[:BATCH_LIMIT]))

    def _send(self, batch: EvaluationBatch) -> None:
        try:
            answer = self._post(batch)
        except (FinishlineError, ValueError) as error:
            log.warning("the attempt is given up: %s", error)
            self.stop_reason = "fenced"
            return
        if not answer.proceed and self.stop_reason is None:
            self.stop_reason = "time_limit" if answer.reason == "time_limit" else "cancelled"

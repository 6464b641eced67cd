"""What a worker takes from the broker: nothing while it is out, paused or drained.

A message that a worker takes and leaves is lost until the server sends it again; one that waits in
the queue is there for the worker beside it.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from worker.state import WorkerState

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
ASK_AGAIN_SECONDS = 30.0  # A loop that loses its connection may forget what it was asked.


def end_process() -> None:
    """End as if the operator had said so: Celery closes its connections first."""
    signal.raise_signal(signal.SIGTERM)


class Intake:
    """Stops taking messages when the worker's state says so, and starts again; ends a drained one.

    The queue belongs to the thread of Celery's loop: this one only asks it, and seldom twice.
    `worker` is the Celery worker; its queue is taken up again after each lost connection. `end`
    ends the process as its operator would.
    """

    def __init__(
        self,
        worker: Any,
        queue: str,
        state: WorkerState,
        *,
        end: Callable[[], object] = end_process,
    ) -> None:
        self._worker = worker
        self._queue = queue
        self._state = state
        self._end = end
        self._is_closed = False
        self._is_ending = False
        self._ask_from = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            consumer = self._worker.consumer
            follows = self._state.takes_nothing == self._is_closed and not self._must_end()
            if follows or consumer is None:
                continue
            if time.monotonic() >= self._ask_from:
                self._ask_from = time.monotonic() + ASK_AGAIN_SECONDS
                consumer.call_soon(self.follow, consumer)

    def follow(self, consumer: Any) -> None:
        """Take messages or take none, as the state says. In the thread of Celery's loop."""
        self._ask_from = 0.0
        close = self._state.takes_nothing
        if consumer.task_consumer is None:
            return  # The connection is lost; asked again once there is one.
        if close and consumer.task_consumer.consuming_from(self._queue):
            consumer.cancel_task_queue(self._queue)
        elif not close and self._is_closed:
            consumer.add_task_queue(self._queue)
        if close != self._is_closed:
            log.info("no message is taken until further notice" if close else "messages again")
        self._is_closed = close
        if self._must_end():  # This loop is at no attempt, and takes none any more.
            self._is_ending = True
            log.info("drained: ending")
            self._end()

    def _must_end(self) -> bool:
        return self._state.drained and not self._is_ending

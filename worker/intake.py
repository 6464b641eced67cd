"""What a worker takes from the broker: nothing while it is out, paused or drained.

A message that a worker takes and leaves is lost until the server sends it again; one that waits in
the queue is there for the worker beside it.

A message is acknowledged when its training has ended. Where the broker is away at that moment the
failed acknowledgement keeps the one place that a worker has for messages, and nobody asks the
broker for anything any more: so the connection is given up, and the next one begins with a free
place.
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

    It gives up a connection on which nothing can come any more.

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
        self._was_deaf = False
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
            # Seen twice: after an attempt its message is acknowledged a moment later.
            was_deaf, self._was_deaf = self._was_deaf, self._is_deaf(consumer)
            if consumer is None or (follows and not (was_deaf and self._was_deaf)):
                continue
            if time.monotonic() >= self._ask_from:
                self._ask_from = time.monotonic() + ASK_AGAIN_SECONDS
                consumer.call_soon(self.follow, consumer)

    def follow(self, consumer: Any) -> None:
        """Take messages or take none, as the state says. In the thread of Celery's loop.

        Raises ConnectionError, for which Celery makes a new connection, where nothing can come.
        """
        self._ask_from = 0.0
        close = self._state.takes_nothing
        if consumer.task_consumer is None:
            return  # The connection is lost; asked again once there is one.
        if self._was_deaf and self._is_deaf(consumer):
            self._was_deaf = False
            raise ConnectionError("a message could not be acknowledged")
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

    def _is_deaf(self, consumer: Any) -> bool:
        """Whether a message of an attempt that is over keeps further ones away."""
        taking = getattr(consumer, "task_consumer", None)
        if taking is None or self._state.busy:
            return False
        return not taking.channel.qos.can_consume()

    def _must_end(self) -> bool:
        return self._state.drained and not self._is_ending

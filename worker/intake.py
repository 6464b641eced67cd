"""What a worker takes from the broker: nothing while it is out.

A message that a worker takes and leaves is lost until the server sends it again; one that waits in
the queue is there for the worker beside it.
"""

import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from worker.state import WorkerState

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
ASK_AGAIN_SECONDS = 30.0  # A loop that loses its connection may forget what it was asked.


class Intake:
    """Stops taking messages when the worker's state says that it is out, and starts again.

    The queues belong to the thread of Celery's loop: this one only asks it, and seldom twice.
    `worker` is the Celery worker; its queues are taken up again after each lost connection.
    """

    def __init__(self, worker: Any, queues: Sequence[str], state: WorkerState) -> None:
        self._worker = worker
        self._queues = queues
        self._state = state
        self._is_closed = False
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
            if self._state.out == self._is_closed or consumer is None:
                continue
            if time.monotonic() >= self._ask_from:
                self._ask_from = time.monotonic() + ASK_AGAIN_SECONDS
                consumer.call_soon(self.follow, consumer)

    def follow(self, consumer: Any) -> None:
        """Take messages or take none, as the state says. In the thread of Celery's loop."""
        self._ask_from = 0.0
        wanted = self._state.out
        if consumer.task_consumer is None:
            return  # The connection is lost; asked again once there is one.
        for queue in self._queues:
            if wanted and consumer.task_consumer.consuming_from(queue):
                consumer.cancel_task_queue(queue)
            elif not wanted:
                consumer.add_task_queue(queue)
        self._is_closed = wanted
        log.info("no message is taken while this worker is out" if wanted else "messages again")

"""State of a worker, which its threads and signal handlers share, and its end in time."""

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from finishline.rules.verification.messages import WorkerWord

log = logging.getLogger(__name__)

REFUSED_EXIT_CODE = 3
STOP_LIMIT_SECONDS = 12.0
POLL_SECONDS = 0.5


@dataclass
class WorkerState:
    """Flags. Plain booleans, because a signal handler sets one and may not take a lock.

    `out` is whether the server found this worker off its own baseline; `paused` and `drained` are
    an organiser's orders. `leave_by`, on time.monotonic(), is the deadline for its present attempt
    once its own operator told it to stop. `refused` is the server's sentence where it refuses this
    worker's token: the worker ends. `roof_wanted` is whether the server knows no roof of this
    worker's hardware class.
    """

    busy: bool = False
    stopping: bool = False
    out: bool = False
    paused: bool = False
    drained: bool = False
    leave_by: float | None = None
    refused: str | None = None
    roof_wanted: bool = False

    @property
    def exit_code(self) -> int:
        """Exit code of the process if all else went well."""
        return REFUSED_EXIT_CODE if self.refused is not None else 0

    @property
    def takes_nothing(self) -> bool:
        """Whether messages are left in their queue, for the worker beside it."""
        return self.out or self.paused or self.drained

    def word(self) -> WorkerWord:
        """The state as a hello tells it."""
        if self.stopping:
            return "stopping"
        if self.leave_by is not None:
            return "draining"
        return "busy" if self.busy else "idle"


def end_process() -> None:
    """End as if the operator had said so: Celery closes its connections first."""
    signal.raise_signal(signal.SIGTERM)


def guard_stop(
    state: WorkerState,
    *,
    limit_seconds: float = STOP_LIMIT_SECONDS,
    leave: Callable[[int], None] = os._exit,
) -> threading.Thread:
    """Start a thread that ends the grace in time, and the process if it then takes too long.

    Ending the training and reporting it take far less; then only closing connections is left. The
    log shows where every thread was. Nothing is lost: an unreported attempt ends with its lease.
    """
    thread = threading.Thread(
        target=_watch, args=(state, limit_seconds, leave), name="stop-guard", daemon=True
    )
    thread.start()
    return thread


def _watch(state: WorkerState, limit_seconds: float, leave: Callable[[int], None]) -> None:
    while not state.stopping:
        time.sleep(POLL_SECONDS)
        if state.leave_by is not None and time.monotonic() >= state.leave_by:
            state.stopping = True
    time.sleep(limit_seconds)
    log.warning("stopping took longer than %.0f s; leaving now", limit_seconds)
    faulthandler.dump_traceback()
    leave(state.exit_code)

"""State of a worker, which its threads and signal handlers share, and its end in time."""

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from finishline.rules.verification.messages import WorkerWord

log = logging.getLogger(__name__)

REFUSED_EXIT_CODE = 3
STOP_LIMIT_SECONDS = 12.0
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Limits:
    """Limits after which a worker ends by itself: attempts made, and idle seconds."""

    attempts: int | None = None
    idle_seconds: float | None = None


@dataclass
class WorkerState:
    """Flags of a worker. A signal handler sets one, and must not take a lock.

    `leave_by`, on time.monotonic(), is the deadline of its present attempt after its operator told
    it to stop. `refused` is the server's sentence if it refuses this worker's token, which ends the
    worker. `roof_wanted` says whether the server lacks a roof of this worker's hardware class.
    `made` counts the attempts it leased, and `idle_since` is when the last one ended.
    """

    busy: bool = False
    stopping: bool = False
    leave_by: float | None = None
    refused: str | None = None
    roof_wanted: bool = False
    limits: Limits = Limits()
    grace_seconds: float = 0.0
    made: int = 0
    idle_since: float = field(default_factory=time.monotonic)

    @property
    def exit_code(self) -> int:
        """Exit code of the process if all else went well."""
        return REFUSED_EXIT_CODE if self.refused is not None else 0

    @property
    def is_done(self) -> bool:
        """Say whether the worker has reached a limit and ends once it is free."""
        most = self.limits.attempts
        is_spent = most is not None and self.made >= most
        return is_spent or (not self.busy and self.seconds_left(1.0) <= 0)

    def seconds_left(self, most: float) -> float:
        """Return seconds until this worker has been idle for as long as it may, at most `most`."""
        longest = self.limits.idle_seconds
        if longest is None:
            return most
        return min(most, max(self.idle_since + longest - time.monotonic(), 0.0))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self.busy = True
        try:
            yield
        finally:
            self.idle_since = time.monotonic()
            self.busy = False

    def leave(self) -> None:
        """Follow a request to stop: at once, or after the grace if an attempt is under way."""
        if not self.busy or not self.grace_seconds or self.leave_by is not None:
            self.stopping = True
        else:  # The stop guard looks at the time: a signal may come while a lock is held.
            self.leave_by = time.monotonic() + self.grace_seconds

    def word(self) -> WorkerWord:
        """Return the state as a hello tells it."""
        if self.stopping:
            return "stopping"
        if self.leave_by is not None or self.is_done:
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
    """Start a thread that ends the grace in time, and then a process that hangs.

    Ending the training and reporting it take far less. Then only connections are left to close. The
    log shows where every thread was. An unreported attempt ends with its lease.
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

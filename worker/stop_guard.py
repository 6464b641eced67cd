"""Make a worker stop when told to, even if the broker's client still waits."""

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable

from worker.intake import WorkerState

log = logging.getLogger(__name__)

STOP_LIMIT_SECONDS = 12.0
POLL_SECONDS = 0.5


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

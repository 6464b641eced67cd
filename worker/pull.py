"""Work asked for at the server itself, for a worker that reaches no broker.

From the job on it is as with a broker: the attempt is claimed, leased and reported alike.
"""

import logging
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from finishline.client.transport import FinishlineError
from finishline.rules.verification.messages import ReplayJob
from worker.link import WorkerLink
from worker.logs import attempt_in_logs
from worker.state import WorkerState

log = logging.getLogger(__name__)
Found = TypeVar("Found")

WAIT_SECONDS = 20.0
# Between two requests: an attempt that may not be claimed is answered again.
PAUSE_SECONDS = 1.0


class _StoppedError(BaseException):
    """Ends a wait for work: a signal came."""


class Puller:
    """Asks for one attempt after the other and makes it; `on_free` is called after each.

    SIGTERM and Ctrl-C let the attempt under way go on for the grace, and a second one or the end of
    the grace ends its training at once and reports it as stopped.
    """

    def __init__(
        self,
        server: WorkerLink,
        *,
        name: str,
        make_attempt: Callable[[ReplayJob], None],
        state: WorkerState,
        on_free: Callable[[], None] = lambda: None,
        stop_grace_seconds: float = 0.0,
    ) -> None:
        self._server = server
        self._name = name
        self._make_attempt = make_attempt
        self._state = state
        self._on_free = on_free
        self._grace = stop_grace_seconds
        self._waits = False
        self._heard = True

    def run(self) -> int:
        """Work until told to stop, or as long as the state's limits say; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            while not (self._state.stopping or self._state.is_done or self._state.leave_by):
                self._step()
        except _StoppedError:
            pass
        return self._state.exit_code

    def _step(self) -> None:
        job = None if self._state.takes_nothing else self._wait(self._ask)
        if job is None:
            self._wait(lambda: time.sleep(PAUSE_SECONDS))
            return
        with self._state.at_work(), attempt_in_logs(job):
            self._make_attempt(job)
        self._on_free()
        if not self._state.leave_by:
            self._wait(lambda: time.sleep(PAUSE_SECONDS))

    def _wait(self, wait: Callable[[], Found]) -> Found:
        """Do what a signal may cut short."""
        self._waits = True
        try:
            if self._state.stopping:
                raise _StoppedError
            return wait()
        finally:
            self._waits = False

    def _ask(self) -> ReplayJob | None:
        try:
            job = self._server.next(self._name, wait_seconds=self._state.seconds_left(WAIT_SECONDS))
        except (FinishlineError, ValueError) as error:
            if self._heard:
                log.warning("no work could be asked for: %s", error)
            self._heard = False
            return None
        if not self._heard:
            log.info("the server answers again")
        self._heard = True
        return job

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._state.leave(self._grace)
        if self._waits:
            raise _StoppedError

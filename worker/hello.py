"""The worker's sign of life: a thread that says hello, and hears what an organiser wants."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from finishline.rules.verification.messages import HelloAnswer, WorkerHello, WorkerSystem
from worker.intake import end_process
from worker.server_client import (
    RefusedError,
    ServerClient,
    TokenRefusedError,
    UnreachableError,
)
from worker.state import WorkerState

log = logging.getLogger(__name__)

HELLO_SECONDS = 5.0


class HelloThread:
    """Says hello at the start, every five seconds, when told to, and when the worker stops.

    The answer says whether the worker is to take work, which its state then holds. A server that
    refuses the token ends the worker: `end` ends the process as its operator would. The first hello
    is over when this is entered, which leaves the end to its caller.

    A server that is away is nothing to stop for: it is logged when it goes and when it is back.
    """

    def __init__(
        self,
        server: ServerClient,
        system: WorkerSystem,
        state: WorkerState,
        *,
        every_seconds: float = HELLO_SECONDS,
        end: Callable[[], object] = end_process,
    ) -> None:
        self._server = server
        self._system = system
        self._state = state
        self._every_seconds = every_seconds
        self._end = end
        self._over = False
        self._due = threading.Event()
        self._heard = True
        self._thread = threading.Thread(target=self._work, name="hello", daemon=True)

    def __enter__(self) -> Self:
        self._say()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state.stopping = True
        self._over = True
        self._due.set()
        self._thread.join()

    def say_soon(self) -> None:
        """Say hello at once, in the thread of this class: the worker has become free."""
        self._due.set()

    def _work(self) -> None:
        while self._state.refused is None:
            self._due.wait(self._every_seconds)
            self._due.clear()
            is_last = self._over
            self._say()
            if is_last:
                return
            if self._state.refused is not None:
                self._end()

    def _say(self) -> None:
        try:
            answer = self._server.hello(WorkerHello(self._system, self._state.word()))
        except TokenRefusedError as error:
            self._state.refused = (
                f"{str(error).rstrip('.')}. This worker ends; give it a token of role worker in "
                "FINISHLINE_WORKER_TOKEN or FINISHLINE_WORKER_TOKEN_FILE."
            )
            log.error(self._state.refused)
            return
        except (RefusedError, UnreachableError, ValueError) as error:
            if self._heard:
                log.warning("hello was not heard: %s", error)
            self._heard = False
            return
        if not self._heard:
            log.info("the server hears this worker again")
        self._heard = True
        self._follow(answer)

    def _follow(self, answer: HelloAnswer) -> None:
        paused, drained = answer.order == "pause", answer.order == "drain"
        if (paused, drained) != (self._state.paused, self._state.drained):
            log.info("asked to %s%s", answer.order, f": {answer.why}" if answer.why else "")
        self._state.paused, self._state.drained = paused, drained
        self._state.roof_wanted = answer.roof_wanted

"""The worker's sign of life: a thread that says hello every few seconds."""

import logging
import threading
from types import TracebackType
from typing import Self

from rules.messages import WorkerHello, WorkerSystem
from worker.server_client import RefusedError, ServerClient, UnreachableError
from worker.state import WorkerState

log = logging.getLogger(__name__)

HELLO_SECONDS = 5.0


class HelloThread:
    """Says hello at the start, every five seconds, and once more when the worker stops.

    A server that is away is nothing to stop for: it is logged when it goes and when it is back.
    """

    def __init__(
        self,
        server: ServerClient,
        system: WorkerSystem,
        state: WorkerState,
        *,
        every_seconds: float = HELLO_SECONDS,
    ) -> None:
        self._server = server
        self._system = system
        self._state = state
        self._every_seconds = every_seconds
        self._over = threading.Event()
        self._heard = True
        self._thread = threading.Thread(target=self._work, name="hello", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state.stopping = True
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        self._say()
        while not self._over.wait(self._every_seconds):
            self._say()
        self._say()

    def _say(self) -> None:
        try:
            self._server.hello(WorkerHello(system=self._system, state=self._state.word()))
        except (RefusedError, UnreachableError) as error:
            if self._heard:
                log.warning("hello was not heard: %s", error)
            self._heard = False
            return
        if not self._heard:
            log.info("the server hears this worker again")
        self._heard = True

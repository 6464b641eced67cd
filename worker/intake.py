"""Messages from the broker, taken one at a time, and the hellos between them."""

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from finishline.client.transport import FinishlineError, NotAllowed, NotSignedIn
from finishline.periodic import PeriodicThread
from finishline.rules.verification.messages import (
    HelloAnswer,
    WorkerHello,
    WorkerSystem,
    WorkerWord,
)
from worker.link import WorkerLink

REFUSED_EXIT_CODE = 3


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


log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
ASK_AGAIN_SECONDS = 30.0  # A loop that loses its connection may forget the request.


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
        self._thread = PeriodicThread("intake", LOOK_SECONDS, self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.stop()

    def _look(self) -> None:
        consumer = self._worker.consumer
        follows = self._state.takes_nothing == self._is_closed and not self._must_end()
        # Seen twice: after an attempt its message is acknowledged a moment later.
        was_deaf, self._was_deaf = self._was_deaf, self._is_deaf(consumer)
        if consumer is None or (follows and not (was_deaf and self._was_deaf)):
            return
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
        server: WorkerLink,
        system: WorkerSystem,
        state: WorkerState,
        *,
        every_seconds: float = HELLO_SECONDS,
        end: Callable[[], object] = end_process,
    ) -> None:
        self._server = server
        self._system = system
        self._state = state
        self._end = end
        self._heard = True
        self._thread = PeriodicThread("hello", every_seconds, self._say_again, last_step=True)

    def __enter__(self) -> Self:
        self._say()
        if self._state.refused is None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state.stopping = True
        self._thread.stop()

    def say_soon(self) -> None:
        """Say hello at once, in the thread of this class: the worker has become free."""
        self._thread.wake()

    def _say_again(self) -> None:
        self._say()
        if self._state.refused is not None and not self._thread.is_stopping:
            self._thread.end()
            self._end()

    def _say(self) -> None:
        try:
            answer = self._server.hello(WorkerHello(self._system, self._state.word()))
        except (NotSignedIn, NotAllowed) as error:
            self._state.refused = (
                f"{str(error).rstrip('.')}. This worker ends; give it a token of role worker in "
                "FINISHLINE_WORKER_TOKEN or FINISHLINE_WORKER_TOKEN_FILE."
            )
            log.error(self._state.refused)
            return
        except (FinishlineError, ValueError) as error:
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

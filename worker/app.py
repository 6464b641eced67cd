"""How work reaches a worker: by Celery, one task at a time, or asked for at the server itself.

The database of the server decides. From the job on both ways are alike: the attempt is claimed,
leased and reported. A message is acknowledged before the training starts and may be lost or come
twice: the server sends it again until a worker claims the attempt, and grants each claim once.

Kombu and Celery raise on many malformed messages in the loop itself, which ends the worker, or keep
the one place for messages. So each raw message is read here first, dropped and logged if it is no
job, and otherwise handed on as one that is made anew from its job and its id.
"""

import base64
import json
import logging
import signal
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from queue import Empty
from types import FrameType
from typing import Any, Self, TypeVar, cast

from celery import Celery
from celery.signals import worker_shutting_down
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from pydantic import TypeAdapter

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.verification.messages import REPLAY_TASK, ReplayJob, queue_of, unacked_keys
from worker.link import WorkerLink
from worker.settings import attempt_in_logs
from worker.state import WorkerState, end_process

log = logging.getLogger(__name__)

LONGEST_ID = 100
SHOWN_CHARACTERS = 300


def read_job(payload: object) -> ReplayJob:
    """The job of a broker message. Raises pydantic's ValidationError, a ValueError."""
    return TypeAdapter(ReplayJob).validate_python(payload)


def read_message(raw: Any) -> dict[str, Any]:
    """Build a well-formed Celery message from the job of a raw one.

    Raises ValueError if it carries none.
    """
    try:
        headers = raw["headers"]
        arguments, named, _ = json.loads(base64.b64decode(raw["body"], validate=True))
        (payload,) = arguments
        task_id, expires = headers["id"], headers.get("expires")
        fits = headers["task"] == REPLAY_TASK and named == {} and isinstance(task_id, str)
        if expires is not None:
            datetime.fromisoformat(expires)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a Celery message ({type(error).__name__}: {error})") from error
    if not (fits and len(task_id) <= LONGEST_ID):
        raise ValueError(f"its task is not {REPLAY_TASK}, called with one job")
    read_job(payload)
    body = json.dumps([[payload], {}, {}], allow_nan=False)  # ValueError if a number is infinite.
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py",
            "task": REPLAY_TASK,
            "id": task_id,
            "root_id": task_id,
            "expires": expires,
        },
        "properties": {
            "body_encoding": "base64",
            "correlation_id": task_id,
            "delivery_info": {"exchange": "", "routing_key": ""},
            "delivery_tag": str(uuid.uuid4()),
        },
    }


class Channel(kombu_redis.Channel):
    """Kombu's channel, made to survive messages that are no JSON."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except (ValueError, RecursionError) as error:
            _note_dropped(error)
            raise Empty from error


class Transport(kombu_redis.Transport):
    """Kombu's transport, which hands on replay jobs alone."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            made = read_message(message)
        except ValueError as error:
            _note_dropped(error)
            return
        super()._deliver(made, queue)  # type: ignore[no-untyped-call]


def _note_dropped(error: Exception) -> None:
    log.error("a message that is no replay job was dropped: %s", str(error)[:SHOWN_CHARACTERS])


LOOK_SECONDS = 0.5
ASK_AGAIN_SECONDS = 30.0  # A loop that loses its connection may forget the request.
BROKER_RETRIES = 60
SOCKET_SECONDS = 15.0


def make_app(
    broker_url: str,
    *,
    name: str,
    make_attempt: Callable[[ReplayJob], None],
    state: WorkerState,
    on_free: Callable[[], None] = lambda: None,
) -> Celery:
    """The application whose one task makes an attempt; `on_free` is called after each.

    `name` is the worker's.
    """
    aliases = cast("dict[str, Any]", TRANSPORT_ALIASES)
    aliases["redis"] = aliases["rediss"] = f"{__name__}:{Transport.__name__}"
    app = Celery("finishline", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_acks_late=False,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=BROKER_RETRIES,
        # A broker that is full, or a replica for a moment, takes messages again later.
        broker_channel_error_retry=True,
        # A broker on a vanished host closes no connection: without a limit a worker waits on it.
        broker_transport_options={"socket_timeout": SOCKET_SECONDS} | unacked_keys(name),
        accept_content=["json"],
        task_serializer="json",
    )

    def replay(payload: object) -> None:
        job = read_job(payload)
        try:
            with state.at_work(), attempt_in_logs(job):
                make_attempt(job)
        finally:
            on_free()

    app.task(name=REPLAY_TASK, shared=False)(replay)
    return app


def run_worker(
    app: Celery,
    *,
    name: str,
    state: WorkerState,
    stop_grace_seconds: float = 0.0,
) -> int:
    """Work until told to stop, or refused by the server; returns the exit code.

    SIGTERM and Ctrl-C let the attempt under way go on for the grace, and a second one or the end of
    the grace ends its training at once and reports it as stopped. Nothing more is taken meanwhile,
    nor while the state says so.
    """

    def note_shutdown(**_: Any) -> None:
        state.leave(stop_grace_seconds)

    queue = queue_of(name)
    worker_shutting_down.connect(note_shutdown, weak=False)
    try:
        worker = app.Worker(
            hostname=f"finishline@{name}",
            pool="solo",
            concurrency=1,
            queues=[queue],
            loglevel="INFO",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        with Intake(worker, queue, state):
            worker.start()
    finally:
        worker_shutting_down.disconnect(note_shutdown)
    return state.exit_code or int(worker.exitcode or 0)


class Intake:
    """Stops taking messages when the worker's state says so, and starts again; ends it at a limit.

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

    def __exit__(self, *_: object) -> None:
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
            log.info("at its limit: ending")
            self._end()

    def _is_deaf(self, consumer: Any) -> bool:
        """Whether a message of an attempt that is over keeps further ones away."""
        taking = getattr(consumer, "task_consumer", None)
        if taking is None or self._state.busy:
            return False
        return not taking.channel.qos.can_consume()

    def _must_end(self) -> bool:
        return self._state.is_done and not self._is_ending


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

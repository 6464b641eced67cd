"""How the id of an attempt reaches this worker: by a task of Celery, or in the answer to a poll.

The server drew this worker for the attempt. Both ways call one function with the id, which leases
the attempt and makes it. An id may be lost, late or repeated: the server draws unleased attempts
again, and grants each lease once.
"""

import logging
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.verification.messages import REPLAY_TASK, queue_of, unacked_keys
from worker.link import WorkerLink
from worker.state import WorkerState, end_process

log = logging.getLogger(__name__)

# Leases an attempt and makes it. Whether this worker got the lease.
MakeAttempt = Callable[[str], bool]

LOOK_SECONDS = 0.5
BROKER_RETRIES = 60
SOCKET_SECONDS = 15.0
WAIT_SECONDS = 20.0
PAUSE_SECONDS = 1.0
# kombu raises these for a broken message, which it has already taken from the queue.
NO_MESSAGE = (ValueError, TypeError, LookupError)


def make_app(broker_url: str, *, name: str, make_attempt: MakeAttempt) -> Celery:
    """Make a worker's Celery application. Its only task makes an attempt."""
    app = Celery("finishline", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        # One task runs at a time. With a limit here, a message whose acknowledgement failed would
        # keep all further ones away.
        worker_prefetch_multiplier=0,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=BROKER_RETRIES,
        # A full broker, or a replica for a moment, takes messages again later.
        broker_channel_error_retry=True,
        # A vanished broker leaves its connection open, so a worker waits with a limit.
        broker_transport_options={"socket_timeout": SOCKET_SECONDS} | unacked_keys(name),
        accept_content=["json"],
    )

    def replay(attempt_id: str) -> None:
        make_attempt(attempt_id)

    app.task(name=REPLAY_TASK, shared=False)(replay)
    return app


def run_celery(app: Celery, *, name: str, state: WorkerState) -> int:
    """Make the attempts that Celery's tasks name, until a signal. Returns the exit code.

    SIGTERM and Ctrl-C let the present attempt go on for the state's grace. A second signal or the
    end of the grace ends its training at once and reports it as stopped.
    """

    def note_shutdown(**_: Any) -> None:
        state.leave()

    def end_at_limit() -> None:
        if state.is_done and not state.busy:
            log.info("at its limit: ending")
            limits.end()
            end_process()

    limits = PeriodicThread("limits", LOOK_SECONDS, end_at_limit)
    worker_shutting_down.connect(note_shutdown, weak=False)
    try:
        worker = app.Worker(
            hostname=f"finishline@{name}",
            pool="solo",
            concurrency=1,
            queues=[queue_of(name)],
            loglevel="INFO",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        worker.consumer.channel_errors += NO_MESSAGE
        with limits:
            worker.start()
    finally:
        worker_shutting_down.disconnect(note_shutdown)
    return state.exit_code or int(worker.exitcode or 0)


class _StoppedError(BaseException):
    """Ends a wait for work: a signal came."""


def poll(server: WorkerLink, *, name: str, make_attempt: MakeAttempt, state: WorkerState) -> int:
    """Make the attempts that the server's answers name, until a signal as in `run_celery`."""
    waits = heard = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        state.leave()
        if waits:
            raise _StoppedError

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        while not (state.stopping or state.is_done or state.leave_by):
            try:
                attempt_id = server.next(name, wait_seconds=state.seconds_left(WAIT_SECONDS))
            except (FinishlineError, ValueError) as error:
                if heard:
                    log.warning("no work could be asked for: %s", error)
                heard = False
                time.sleep(PAUSE_SECONDS)
                continue
            if not heard:
                log.info("the server answers again")
            heard = True
            if attempt_id is not None:
                waits = False
                made = make_attempt(attempt_id)
                waits = True
                if not made:  # The server would answer the same attempt at once.
                    time.sleep(PAUSE_SECONDS)
    except _StoppedError:
        pass
    return state.exit_code

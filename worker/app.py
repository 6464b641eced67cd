"""The Celery application: one task, one at a time, and a database elsewhere that decides.

A message is acknowledged before the training starts and may be lost or come twice: the server sends
it again until a worker claims the attempt, and grants each claim once.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from finishline.rules.verification.messages import REPLAY_TASK, ReplayJob, queue_of
from worker.broker import transport_options, use_careful_transport
from worker.intake import Intake, WorkerState
from worker.logs import attempt_in_logs
from worker.wire import read_job

log = logging.getLogger(__name__)

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
    use_careful_transport()
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
        broker_transport_options={"socket_timeout": SOCKET_SECONDS} | transport_options(name),
        accept_content=["json"],
        task_serializer="json",
    )

    def replay(payload: object) -> None:
        job = read_job(payload)
        state.busy = True
        try:
            with attempt_in_logs(job):
                make_attempt(job)
        finally:
            state.busy = False
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
        if not state.busy or not stop_grace_seconds or state.leave_by is not None:
            state.stopping = True
        else:  # The stop guard looks at the time: a signal may come while a lock is held.
            state.leave_by = time.monotonic() + stop_grace_seconds

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

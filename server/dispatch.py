"""The loop that sends what is due. The database decides; the broker may lose or double anything.

An attempt is sent only while a worker is alive that could take it, and again after a while if
nobody claimed it. Expired leases are found by the same loop. Any number of servers may run it:
each step is one conditional UPDATE that only one of them wins.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from celery import Celery
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from rules.messages import ANY_QUEUE, REPLAY_TASK, ReplayJob, job_kind, queue_of
from rules.replay_plan import Plan, build_job
from server.calibrations.queries import benchmark_of
from server.database import Database, utc_now
from server.models import Attempt, Submission, WorkerRow
from server.settings import Settings
from server.verifications.overdue import end_overdue, expire_leases
from server.verifications.queries import claim_of, fit_workers
from server.viewer import ORGANISER

log = logging.getLogger(__name__)

RESEND_SECONDS = (5.0, 10.0, 20.0)
MESSAGE_LIFE_SECONDS = 60.0
SENT_PER_WORKER = 2


@dataclass(frozen=True)
class Sending:
    """A job and the queue it goes to."""

    job: ReplayJob
    queue: str


def make_broker(url: str) -> Celery:
    """The sending side of the broker: short timeouts, because the loop will come again."""
    app = Celery("finishline-server", broker=url)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        broker_connection_retry=False,
        broker_connection_retry_on_startup=False,
        broker_connection_timeout=3.0,
        broker_transport_options={
            "socket_timeout": 3.0,
            "socket_connect_timeout": 3.0,
            "max_retries": 1,
        },
        task_publish_retry=False,
    )
    return app


def take_due(session: Session, *, alive_seconds: float) -> list[Sending]:
    """The oldest due attempts, as many as living workers could take, marked as sent."""
    workers = fit_workers(session, alive_seconds=alive_seconds)
    if not workers:
        return []
    now = utc_now()
    due = session.scalars(
        select(Attempt)
        .where(Attempt.state == "queued", Attempt.send_after <= now)
        .order_by(Attempt.created_at)
        .limit(SENT_PER_WORKER * len(workers))
    ).unique()
    sendings = []
    for attempt in due:
        pause = RESEND_SECONDS[min(attempt.sends, len(RESEND_SECONDS) - 1)]
        won = session.execute(
            update(Attempt)
            .where(
                Attempt.id == attempt.id,
                Attempt.state == "queued",
                Attempt.sends == attempt.sends,
            )
            .values(sends=Attempt.sends + 1, send_after=now + timedelta(seconds=pause))
            .returning(Attempt.id)
        ).first()
        if won is not None:
            sendings.append(_build(session, attempt, workers))
    return sendings


def _build(session: Session, attempt: Attempt, workers: Sequence[WorkerRow]) -> Sending:
    verification = attempt.verification
    submission = verification.submission
    job = build_job(
        benchmark_of(session, verification),
        claim_of(submission) if submission is not None else None,
        Plan(seeds=tuple(verification.seeds), nonce=verification.nonce),
        attempt_id=attempt.id,
        verification_id=verification.id,
        submission_id=verification.submission_id,
        kind=job_kind(verification.kind),
        hyperparameters_by_run=verification.hyperparameters or (),
    )
    return Sending(job=job, queue=_queue_for(submission, workers))


def _queue_for(submission: Submission | None, workers: Sequence[WorkerRow]) -> str:
    """That of the submission's hardware class if a worker listens there, else that of all."""
    wanted = submission.system["hardware_class"] if submission is not None else None
    same = any(worker.hardware_class == wanted for worker in workers)
    return queue_of(wanted) if wanted is not None and same else ANY_QUEUE


class Dispatcher:
    """A thread that sends what is due and expires what went silent, until it is stopped."""

    def __init__(self, database: Database, broker: Celery, settings: Settings) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._stop = threading.Event()
        self._broker_ok: bool | None = None
        self._database_ok = True
        self._round_ended_at: float | None = None
        self._thread = threading.Thread(target=self._loop, name="dispatch", daemon=True)

    @property
    def broker_state(self) -> str:
        """What the last contact with the broker showed: ok, unreachable, or not tried yet."""
        return {None: "not tried yet", True: "ok", False: "unreachable"}[self._broker_ok]

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    @property
    def seconds_since_round(self) -> float | None:
        """How long ago a round last ended well; None before the first."""
        return None if self._round_ended_at is None else time.monotonic() - self._round_ended_at

    def ask_broker(self) -> None:
        """Raise what the broker's driver raises unless the broker answers."""
        with self._broker.connection_for_write() as connection:
            # Opening a connection sends a PING; kombu would wait for two seconds between two tries.
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the round under way."""
        self._stop.set()
        self._thread.join(timeout=10.0)
        self._broker.close()

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once()
                self._note_database(ok=True)
                self._round_ended_at = time.monotonic()
            except DBAPIError as error:
                self._note_database(ok=False, why=str(error.orig))
            except Exception:
                log.exception("dispatch round failed; trying again")
            self._stop.wait(self._settings.dispatch_interval_seconds)

    def _note_database(self, *, ok: bool, why: str = "") -> None:
        """Say once that the database is away, and once that it is back."""
        if ok and not self._database_ok:
            log.info("the database answers again")
        elif not ok and self._database_ok:
            log.error("the database does not answer (%s); trying again until it does", why.strip())
        self._database_ok = ok

    def run_once(self) -> None:
        """One round: expire, end what is overdue, then send."""
        if self._has_work():
            with self._database.write() as session:
                expire_leases(session)
                end_overdue(session)
                sendings = take_due(session, alive_seconds=self._settings.worker_alive_seconds)
            for sending in sendings:
                # A broker that is away makes each try wait, and leases have to be looked at: what
                # was not sent is due again soon.
                if not self._send(sending):
                    break

    def _has_work(self) -> bool:
        """A cheap look first, so that an idle server takes no write lock."""
        with self._database.read(ORGANISER) as session:
            return (
                session.scalar(
                    select(Attempt.id).where(Attempt.state.in_(("queued", "running"))).limit(1)
                )
                is not None
            )

    def _send(self, sending: Sending) -> bool:
        body: dict[str, Any] = asdict(sending.job)
        try:
            self._broker.send_task(
                REPLAY_TASK, args=[body], queue=sending.queue, expires=MESSAGE_LIFE_SECONDS
            )
        except Exception as error:  # noqa: BLE001  Whatever it is, the attempt is sent again.
            self._broker_ok = False
            log.warning("attempt was not sent (%s); trying again", error, extra=_ids(sending.job))
            return False
        self._broker_ok = True
        log.info("attempt sent to %s", sending.queue, extra=_ids(sending.job))
        return True


def _ids(job: ReplayJob) -> dict[str, str]:
    """What a log line about a job names."""
    ids = {"attempt_id": job.attempt_id, "verification_id": job.verification_id}
    return ids if job.submission_id is None else ids | {"submission_id": job.submission_id}

"""What may never happen, watched from the database while it happens."""

import contextlib
import threading
import time
from collections import defaultdict
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from server.base.database import Database, utc_now
from server.base.models import Attempt, WorkerRow

LOOK_SECONDS = 0.5
HELLO_SECONDS = 12.0  # A worker that was heard within two hellos is there to work.


class Watch:
    """Longest times that attempts stood still: `overdue` past the lease, `idle` with a free worker.

    An attempt that is queued while no worker is free stands still for a good reason.
    """

    def __init__(self, database: Database) -> None:
        self.overdue_seconds = 0.0
        self.idle_seconds = 0.0
        self._idle: dict[str, float] = defaultdict(float)
        self._database = database
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        last = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            with contextlib.suppress(SQLAlchemyError):  # The database may be restarting.
                self._look(now - last)
            last = now

    def _look(self, passed_seconds: float) -> None:
        now = utc_now()
        with self._database.read() as session:
            running = session.scalars(
                select(Attempt.lease_expires_at).where(Attempt.state == "running")
            ).all()
            queued = session.scalars(select(Attempt.id).where(Attempt.state == "queued")).all()
            free = session.scalar(
                select(WorkerRow.name)
                .where(WorkerRow.state == "idle")
                .where(WorkerRow.last_seen_at > now - timedelta(seconds=HELLO_SECONDS))
                .limit(1)
            )
        late = [(now - expiry).total_seconds() for expiry in running if expiry is not None]
        self.overdue_seconds = max([self.overdue_seconds, *late])
        for attempt_id in queued if free is not None else ():
            self._idle[attempt_id] += passed_seconds
        self.idle_seconds = max([self.idle_seconds, *self._idle.values()])

"""What may never happen, watched from the database while it happens."""

import contextlib
import threading
import time
from collections import defaultdict
from datetime import timedelta

import httpx2
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from server.base.database import utc_now
from server.base.models import Attempt, WorkerRow
from tests.chaos.cluster import runs
from tests.support.processes import asking

LOOK_SECONDS = 0.5
HELLO_SECONDS = 12.0  # A worker that was heard within two hellos is there to work.


class Watch:
    """Longest times that attempts stood still: `overdue` past the lease, `idle` with a free worker.

    An attempt that is queued while no worker is free stands still for a good reason, and so does
    one beside the reference, which waits for all others. Nothing is held against a server that is
    down, and an expired lease only from its return. `trainings` are all that were seen.
    """

    def __init__(self, cluster):
        self.overdue_seconds = 0.0
        self.idle_seconds = 0.0
        self._idle = defaultdict(float)
        self._back_at = None
        self.trainings = set()
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def left_trainings(self):
        """Training processes and boxes that no worker has any more and that run all the same."""
        return [each for each in self.trainings - set(self._cluster.trainings()) if runs(each)]

    def _work(self):
        last = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            # A set of its own: the test may be reading the one before.
            self.trainings = self.trainings.union(self._cluster.trainings())
            with contextlib.suppress(SQLAlchemyError):  # The database may be restarting.
                self._look(now - last)
            last = now

    def _look(self, passed_seconds):
        now = utc_now()
        if not self._server_answers():
            self._back_at = None
            return
        back_at = self._back_at = self._back_at or now
        with self._cluster.database.read() as session:
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
        expired = [max(expiry, back_at) for expiry in running if expiry is not None]
        late = [(now - expiry).total_seconds() for expiry in expired]
        self.overdue_seconds = max([self.overdue_seconds, *late])
        for attempt_id in queued if free is not None else ():
            self._idle[attempt_id] += passed_seconds
        self.idle_seconds = max([self.idle_seconds, *self._idle.values()])

    def _server_answers(self):
        with contextlib.suppress(httpx2.TransportError):
            return asking.get(f"{self._cluster.url}/healthz", timeout=5.0).is_success
        return False

"""Workers that reach nothing but this server: each asks for its next attempt and waits.

The dispatcher draws the worker of an attempt as ever. A worker that asks here reads from the
database that it was drawn; it is sent no message by the broker.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select, update

from finishline.rules.verification.messages import ReplayJob
from server.base.database import OUTAGES, Database, utc_now
from server.base.errors import NotFoundError
from server.base.models import Attempt, WorkerRow
from server.base.viewer import ORGANISER
from server.people.dependencies import Caller
from server.verifications.queue_order import build_sending
from server.verifications.workers import require_own_name

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.25


def note_asking(database: Database, name: str, caller: Caller) -> None:
    """Note that a worker asks for work. Raises NotFoundError before its first hello."""
    with database.write_beside() as session:
        if not require_own_name(session, name, caller):
            raise NotFoundError(f"There is no worker {name!r}: expected its hello first.")
        asking = update(WorkerRow).where(WorkerRow.name == name)
        session.execute(asking.values(pulled_at=utc_now()))


def job_of(database: Database, attempt_id: str, name: str) -> ReplayJob | None:
    """The job of an attempt that waits for this worker; None if it no longer does."""
    with database.read(ORGANISER) as session:
        attempt = session.get(Attempt, attempt_id)
        if attempt is None or (attempt.state, attempt.sent_to) != ("queued", name):
            return None
        return build_sending(session, attempt_id, name).job


class PullDesk:
    """Waiting workers of this process; one look at the database serves all of them.

    Belongs to the thread of the event loop.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, name: str, seconds: float) -> str | None:
        """The attempt that waits for a worker; None if there is none within these seconds.

        A worker that asks a second time takes the place of its first request.
        """
        with self._place(name) as found:
            await asyncio.wait([found], timeout=seconds)
            return found.result() if found.done() and not found.cancelled() else None

    @contextmanager
    def _place(self, name: str) -> Iterator[asyncio.Future[str]]:
        earlier = self._waiting.get(name)
        if earlier is not None:
            earlier.cancel()
        loop = asyncio.get_running_loop()
        found = self._waiting[name] = loop.create_future()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look())
        try:
            yield found
        finally:
            if self._waiting.get(name) is found:
                del self._waiting[name]

    async def _look(self) -> None:
        while self._waiting:
            try:
                drawn = await run_in_threadpool(self._drawn)
            except OUTAGES as error:
                log.warning("no work was looked up for %d workers: %s", len(self._waiting), error)
                drawn = []
            for name, attempt_id in drawn:
                found = self._waiting.get(name)
                if found is not None and not found.done():
                    found.set_result(attempt_id)
            await asyncio.sleep(LOOK_SECONDS)

    def _drawn(self) -> list[tuple[str, str]]:
        with self._database.read_columns() as connection:
            rows = connection.execute(
                select(Attempt.sent_to, Attempt.id)
                .where(Attempt.state == "queued", Attempt.sent_to > "")
                .order_by(Attempt.asked_at)
            )
            return [(name, attempt_id) for name, attempt_id in rows if name is not None]

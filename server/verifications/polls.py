"""Long polls of workers without a broker: each waits for the attempt that it was drawn for."""

import asyncio
import time
from contextlib import suppress

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from server.base.database import OUTAGES, Database
from server.base.errors import NotFoundError
from server.base.models import Attempt
from server.people.dependencies import Caller
from server.verifications.workers import require_own_name

LONGEST_WAIT_SECONDS = 20.0
LOOK_SECONDS = 0.2


def require_greeted(database: Database, name: str, caller: Caller) -> None:
    """Raise NotFoundError for a worker before its first sign-on, NotAllowedError for another's."""
    with database.read() as session:
        if not require_own_name(session, name, caller):
            raise NotFoundError(f"There is no worker {name!r}: expected its sign-on first.")


class PollDesk:
    """Attempts that wait for a worker's lease: one look at the database serves all long polls.

    Belongs to the thread of the event loop.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._drawn: dict[str, str] = {}
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    async def wait(self, name: str, seconds: float) -> str | None:
        """The attempt that waits for a worker; None if there is none within these seconds."""
        since = time.monotonic()  # An earlier look may show an attempt that this worker has ended.
        give_up_at = since + seconds
        while True:
            async with self._looking:
                await self._look(since)
            if name in self._drawn or time.monotonic() >= give_up_at:
                return self._drawn.get(name)
            since = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, since: float) -> None:
        """Read who waits for whom, unless somebody began to after this moment."""
        if self._looked_at >= since:
            return
        self._looked_at = time.monotonic()
        with suppress(*OUTAGES):  # The dispatch loop logs them.
            self._drawn = await run_in_threadpool(self._read)

    def _read(self) -> dict[str, str]:
        with self._database.read_columns() as connection:
            rows = connection.execute(
                select(Attempt.sent_to, Attempt.id)
                .where(Attempt.state == "queued", Attempt.sent_to.is_not(None))
                .order_by(Attempt.asked_at.desc())
            )
            return {name: attempt_id for name, attempt_id in rows if name is not None}

"""Draw a worker for each attempt. The database decides, because a message may be lost.

A worker is drawn when it is free, so the choice comes as late as possible. The worker gets the
attempt's id by a task of Celery, or in the answer to its long poll, and leases the attempt by HTTP.
An attempt without a lease is drawn again. The loop wakes when this process commits work for it, and
every interval. It also expires leases. Any number of servers may run it: each step is one
conditional UPDATE, and one server wins.

The server that grants a lease sets its time. A process with a clock unlike the database's would
expire the leases of other servers, so it leaves expiry to them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import orjson
from fastapi import Query, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import ColumnElement, exists, func, select

from finishline.periodic import PeriodicThread
from finishline.rules.verification.messages import NextAttempt
from server.base.broker import Broker
from server.base.database import OUTAGES, Database, ServicesDep, utc_now
from server.base.errors import NotFoundError
from server.base.events import DispatchWakeup
from server.base.models import Attempt, Board
from server.base.settings import Settings
from server.base.visibility import ORGANISER
from server.people.callers import Caller, WorkerDep
from server.people.declared import Routes
from server.verifications.queue import Drawn, anything_to_send, take_due
from server.verifications.sweep import (
    end_overdue,
    end_unmade_cross_checks,
    end_waited,
    expire_leases,
)
from server.verifications.workers import require_own_name

log = logging.getLogger(__name__)

# Thousands of submissions in a second share one look.
BREATH_SECONDS = 0.01
# An idle loop waits longer: new work wakes it.
IDLE_INTERVALS = 4
# Quotas and workers get free with time, while the boards' versions stay.
SETTLE_SECONDS = 600.0
UNMADE_SECONDS = 10.0  # Between searches for reruns without an able worker.
# Less than any lease.
CLOCK_SECONDS = 2.0


class Dispatcher:
    """Thread that draws workers for attempts and expires leases."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: Settings,
        *,
        settle_boards: Callable[..., bool] = lambda *, every: False,
    ) -> None:
        self._database = database
        self.broker = broker
        self._settings = settings
        self._is_idle = False
        self._tended_at = 0.0
        self._looked_at = time.monotonic()  # Workers have time to come back after a start.
        self._round_ended_at: float | None = None
        # Built once: an idle round costs little else.
        self._what_is_open = select(*_open_columns(database))
        self._settle_boards = settle_boards
        self._versions: int | None = None
        self._settled_at = time.monotonic()
        # How far this process's clock is ahead of the database's, negative if behind.
        self.clock_ahead_seconds = 0.0
        self._thread = PeriodicThread(
            "dispatch",
            settings.dispatch_interval_seconds,
            self._round,
            database.state.of(DispatchWakeup),
            outages=OUTAGES,
        )

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_running

    @property
    def seconds_since_round(self) -> float | None:
        """Seconds since a round last succeeded. None before the first."""
        return None if self._round_ended_at is None else time.monotonic() - self._round_ended_at

    @property
    def is_clock_off(self) -> bool:
        """Whether this process's clock differs from the database's."""
        return abs(self.clock_ahead_seconds) > CLOCK_SECONDS

    def start(self) -> None:
        """Start the thread, with a round at once."""
        self._thread.wake()
        self._thread.start()

    def stop(self) -> None:
        """Stop after the round under way."""
        self._thread.stop()
        self.broker.close()

    def _round(self) -> float:
        """Return the seconds until the next round."""
        try:
            self.run_once()
        finally:
            self._thread.pause(BREATH_SECONDS)
        self._round_ended_at = time.monotonic()
        return self._settings.dispatch_interval_seconds * (IDLE_INTERVALS if self._is_idle else 1)

    def run_once(self) -> None:
        """Settle boards, end lost and overdue attempts, draw workers. Idle, it is one statement."""
        runs, waits, versions = self._open()
        if self._settle(versions):
            runs, waits, _ = self._open()
        self._is_idle = not runs and not waits
        since = time.monotonic() - self._tended_at
        if (
            runs
            and not self.is_clock_off
            and (not self._thread.was_woken or since >= self._settings.dispatch_interval_seconds)
        ):
            self._tended_at = time.monotonic()
            for sweep in (expire_leases, end_overdue):
                waits = bool(sweep(self._database)) or waits
        if waits and not self.is_clock_off and time.monotonic() - self._looked_at >= UNMADE_SECONDS:
            self._looked_at = time.monotonic()
            for sweep in (end_unmade_cross_checks, end_waited):
                sweep(self._database)
        for drawn in self._draw() if waits else ():
            # Each try waits for an unreachable broker, and leases have to be checked. Unsent
            # attempts are drawn again soon.
            if not (drawn.polls or self._send(drawn)):
                break

    def _settle(self, versions: int | None) -> bool:
        """Settle boards after a change, and every while. Changes during it are seen next time."""
        every = time.monotonic() - self._settled_at >= SETTLE_SECONDS
        if versions == self._versions and not every:
            return False
        did = self._settle_boards(every=every)
        self._versions = versions
        self._settled_at = time.monotonic() if every else self._settled_at
        return did

    def _open(self) -> tuple[bool, bool, int | None]:
        with self._database.read(ORGANISER) as session:
            asked_at = utc_now()
            row = session.execute(self._what_is_open).one()
        if not self._database.is_sqlite:
            self.clock_ahead_seconds = seconds_ahead(row[3], since=asked_at, until=utc_now())
        return bool(row[0]), bool(row[1]), row[2]

    def _draw(self) -> list[Drawn]:
        """Read first, because only a free worker needs a write."""
        with self._database.read(ORGANISER) as session:
            if not anything_to_send(session):
                return []
        with self._database.write() as session:
            return take_due(session)

    def _send(self, drawn: Drawn) -> bool:
        named = {"attempt_id": drawn.attempt_id}
        try:
            self.broker.send_attempt(drawn.attempt_id, drawn.worker)
        except Exception as error:  # noqa: BLE001  Whatever it is, the attempt is drawn again.
            log.warning("attempt was not sent (%s); trying again", error, extra=named)
            return False
        log.info("attempt sent to %s", drawn.worker, extra=named)
        return True


def _open_columns(database: Database) -> list[ColumnElement[Any]]:
    """Select whether attempts run and wait, the boards' versions, and the database's time."""
    columns: list[ColumnElement[Any]] = [
        *(exists().where(Attempt.state == s).select_from(Attempt) for s in ("running", "queued")),
        select(func.sum(Board.version)).scalar_subquery(),
    ]
    # SQLite has the clock of this machine.
    return columns if database.is_sqlite else [*columns, func.clock_timestamp()]


def seconds_ahead(there: datetime, *, since: datetime, until: datetime) -> float:
    """Return how far the local clock is ahead of `there`, read between two local times."""
    if there < since:
        return (since - there).total_seconds()
    return min((until - there).total_seconds(), 0.0)


router = Routes(tags=["workers"])
LONGEST_WAIT_SECONDS = 20.0
LOOK_SECONDS = 0.2
WaitDep = Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds at most.")]
NO_WORK: dict[str, Any] = {"description": "There is no attempt for this worker yet."}


@router.post("/workers/{name}/next", response_model=NextAttempt, responses={204: NO_WORK})
async def next_attempt(
    name: str, services: ServicesDep, caller: WorkerDep, wait: WaitDep = LONGEST_WAIT_SECONDS
) -> Response:
    """Wait for a worker's next attempt, which the worker then leases. 204: no attempt yet.

    For workers without a broker. Answers the same attempt until it is leased.
    """
    await run_in_threadpool(_require_greeted, services.database, name, caller)
    attempt_id = await services.of(PollDesk).wait(name, wait)
    if attempt_id is None:
        return Response(status_code=204)
    return Response(orjson.dumps(NextAttempt(attempt_id)), media_type="application/json")


def _require_greeted(database: Database, name: str, caller: Caller) -> None:
    with database.read() as session:
        if not require_own_name(session, name, caller):
            raise NotFoundError(f"There is no worker {name!r}: expected its sign-on first.")


class PollDesk:
    """Attempts waiting for a lease. One look serves all polls, on the event loop's thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._drawn: dict[str, str] = {}
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    async def wait(self, name: str, seconds: float) -> str | None:
        """Return the attempt drawn for a worker, or None after these seconds."""
        since = time.monotonic()  # An earlier look may show an attempt that this worker has ended.
        give_up_at = since + seconds
        while True:
            async with self._looking:
                if self._looked_at < since:
                    self._looked_at = time.monotonic()
                    with suppress(*OUTAGES):  # The dispatch loop logs them.
                        self._drawn = await run_in_threadpool(self._read)
            if name in self._drawn or time.monotonic() >= give_up_at:
                return self._drawn.get(name)
            since = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)

    def _read(self) -> dict[str, str]:
        with self._database.read(ORGANISER) as session:
            rows = session.execute(
                select(Attempt.sent_to, Attempt.id)
                .where(Attempt.state == "queued", Attempt.sent_to.is_not(None))
                .order_by(Attempt.asked_at.desc())
            )
            return {name: attempt_id for name, attempt_id in rows if name is not None}

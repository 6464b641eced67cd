"""Check this process's health: /readyz with its queues, /healthz, and draining before a stop.

Both addresses answer even if all threads that serve requests hang.
"""

import asyncio
import logging
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import APIRouter, Response
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from server.base.artifacts import ArtifactStore
from server.base.database import Database, Services, ServicesDep, utc_now
from server.base.fleet import Fleet, state_word
from server.base.models import Attempt, WorkerRow
from server.base.places import VERSION
from server.base.settings import MIB, Settings
from server.base.visibility import ORGANISER
from server.benchmarks.in_force import frozen_differences
from server.verifications.dispatch import Dispatcher

T = TypeVar("T")


class BackgroundValue(Generic[T]):
    """The latest answer of a query, asked at most once every `keep_seconds`, in its own thread.

    So it is asked even if all threads that serve requests hang. One query runs at a time, and
    readers wait at most `limit_seconds` from its start.
    """

    def __init__(self, ask: Callable[[], T], *, keep_seconds: float, limit_seconds: float) -> None:
        self._ask = ask
        self.keep_seconds = keep_seconds
        self.limit_seconds = limit_seconds
        self._asked_at = 0.0
        self._answer: Future[T] | None = None

    async def get(self) -> T:
        """Return the value. Raises the query's error, or TimeoutError if it takes too long."""
        answer, now = self._answer, time.monotonic()
        if answer is None or (answer.done() and now - self._asked_at >= self.keep_seconds):
            answer = self._answer = Future()
            self._asked_at = now
            # A daemon, so that the process can end while a query hangs.
            threading.Thread(target=self._run, args=(answer,), daemon=True).start()
        if not answer.done():
            seconds = self._asked_at + self.limit_seconds - now
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), seconds)
        return answer.result()

    def _run(self, answer: Future[T]) -> None:
        try:
            answer.set_result(self._ask())
        except Exception as error:  # noqa: BLE001  Raised again where the answer is awaited.
            answer.set_exception(error)


log = logging.getLogger(__name__)

State = Literal["ok", "degraded", "failing"]


class HealthView(Schema):
    """Answer of the process, with its version."""

    status: Literal["ok"] = "ok"
    version: str


class CheckView(Schema):
    """One check. It can be failing if submissions need it, else it is degraded at worst."""

    name: str
    needed: bool
    state: State
    detail: str


class ReadinessView(Schema):
    """Outcome of all checks."""

    status: Literal["ready", "degraded", "not ready", "draining"]
    version: str
    checks: list[CheckView]


class UnwellError(Exception):
    """A check found a fault, shown to anybody. If it `is_minor`, submissions are still taken."""

    def __init__(self, detail: str, *, is_minor: bool = False) -> None:
        super().__init__(detail)
        self.is_minor = is_minor


ANY_CLASS = "any"


class Queue(NamedTuple):
    """Waiting attempts, ages in seconds. `beside_free_seconds` is with a suitable idle worker."""

    attempts: int = 0
    oldest_seconds: float = 0.0
    beside_free_seconds: float = 0.0


def state_of(fleet: Fleet, worker: WorkerRow) -> str:
    """Name a worker's state: idle, busy, stopping, drifted, paused, unconfirmed or gone."""
    if worker.last_seen_at < fleet.since:
        return "gone"
    word = state_word(worker)
    return "paused" if fleet.pause and word != "stopping" else word


def read_queues(session: Session, fleet: Fleet) -> dict[str, Queue]:
    """Read each class's queue by name. Unknown classes count as any: submitters make up names."""
    queues = {worker.hardware_class: Queue() for worker in fleet.workers} | {ANY_CLASS: Queue()}
    query = (
        select(Attempt.hardware_class, func.count(), func.min(Attempt.created_at))
        .where(Attempt.state == "queued")
        .group_by(Attempt.hardware_class)
    )
    for wanted, attempts, oldest in session.execute(query):
        name = wanted if wanted in queues else ANY_CLASS
        age = max((utc_now() - oldest).total_seconds(), 0.0)
        able = set(fleet.takers(name)) & set(fleet.open)
        is_free = any(worker.state == "idle" for worker in able)
        before = queues[name]
        queues[name] = Queue(
            before.attempts + attempts,
            max(before.oldest_seconds, age),
            max(before.beside_free_seconds, age if is_free else 0.0),
        )
    return queues


STALE_ROUND_SECONDS = 30.0
STUCK_SECONDS = 120.0
GROW = (
    "CREATE TEMPORARY TABLE finishline_room ON COMMIT DROP AS "
    "SELECT repeat('x', 1000) FROM generate_series(1, 100)"
)


# If a check of these fails, no submission can be taken.
NEEDED = frozenset({"database", "artifacts"})
# Returns a sentence, or raises UnwellError or any error.
Check = Callable[[], str]


def make_checks(services: Services, dispatcher: Dispatcher, *, revision: str) -> dict[str, Check]:
    """Make every check of a server, in the order of showing. `revision` is the schema's."""
    settings, database = services.settings, services.database
    return {
        "database": lambda: check_database(database, revision),
        "artifacts": lambda: check_artifacts(services.artifacts, settings),
        "broker": lambda: check_broker(dispatcher),
        "dispatch": lambda: check_dispatch(dispatcher),
        "clock": lambda: check_clock(dispatcher),
        "queue": lambda: check_queue(database),
        "definitions": lambda: check_definitions(database, settings),
    }


def check_database(database: Database, revision: str) -> str:
    """Check that the database answers, takes writes, and has this code's schema."""
    with database.read() as session:
        found = session.scalar(text("SELECT version_num FROM alembic_version"))
        is_writable = True
        # Asked without a lock, because a long write of another session is normal.
        if not database.is_sqlite:
            is_writable = session.scalar(text("SHOW transaction_read_only")) == "off"
        elif database.url.database not in (None, "", ":memory:"):
            is_writable = os.access(str(database.url.database), os.W_OK)
        has_room = not database.was_full or _has_room(session)
    if found != revision:
        raise UnwellError(f"The database is at revision {found}, this server needs {revision}.")
    if not is_writable:
        raise UnwellError("The database is read-only: nothing can be stored.")
    if not has_room:
        raise UnwellError("The database's disk is full: nothing can be stored.")
    database.was_full = False
    return f"The database answers; it is at revision {found}."


def _has_room(session: Session) -> bool:
    """Check that a table can grow, by a write that is rolled back. Asked after a failure only.

    A small change still fits into a full database, so its success proves nothing.
    """
    try:
        session.execute(text(GROW))
    except OperationalError:
        return False
    except DBAPIError:
        return True  # The database user lacks the right.
    finally:
        session.rollback()
    return True


def check_artifacts(store: ArtifactStore, settings: Settings) -> str:
    """Check that logs can be written to the folder, and to the bucket if there is one."""
    probe = store.incoming / f"check-{secrets.token_hex(8)}"
    try:
        probe.write_bytes(b"ready")
        probe.unlink()
    except OSError as error:
        raise UnwellError(f"The folder of the logs is not writable: {error.strerror}.") from error
    if store.bucket is not None:
        store.bucket.check()
    free = shutil.disk_usage(store.folder).free
    if free < settings.max_request_bytes:
        room = f"{free / MIB:.0f} MiB free, less than one submission may need"
        raise UnwellError(f"Logs can be written, but {room}.", is_minor=True)
    return "Logs can be written."


def check_broker(dispatcher: Dispatcher) -> str:
    """Check that the broker answers. Replays wait until it does."""
    dispatcher.broker.ask()
    return "The broker answers."


def check_dispatch(dispatcher: Dispatcher) -> str:
    """Check that the dispatch loop runs, and that its last round ended well and lately."""
    seconds = dispatcher.seconds_since_round
    if not dispatcher.is_running or seconds is None:
        raise UnwellError("This process runs no dispatch of attempts.")
    if seconds > STALE_ROUND_SECONDS:
        raise UnwellError(f"Attempts were last looked for {seconds:.0f} s ago.")
    return f"Attempts were looked for {seconds:.1f} s ago."


def check_clock(dispatcher: Dispatcher) -> str:
    """Check that this machine and the database agree on the time."""
    if dispatcher.is_clock_off:
        ahead = dispatcher.clock_ahead_seconds
        word = "ahead of" if ahead > 0 else "behind"
        raise UnwellError(f"This machine's clock is {abs(ahead):.0f} s {word} the database's.")
    return "This machine and the database have the same time."


def check_queue(database: Database) -> str:
    """Check that no attempt waits for long while a suitable worker is idle."""
    with database.read(ORGANISER) as session:
        fleet = Fleet.read(session)
        queues = read_queues(session, fleet).values()
    stuck_seconds = max(queue.beside_free_seconds for queue in queues)
    if stuck_seconds > STUCK_SECONDS:
        raise UnwellError(f"An attempt waits for {stuck_seconds:.0f} s beside an idle worker.")
    queued = sum(queue.attempts for queue in queues)
    oldest_seconds = max(queue.oldest_seconds for queue in queues)
    idle = sum(worker.state == "idle" for worker in fleet.open)
    return (
        f"Attempts waiting: {queued}, the oldest for {oldest_seconds:.0f} s; idle workers: {idle}."
    )


def check_definitions(database: Database, settings: Settings) -> str:
    """Check that the files of frozen benchmarks match, because scores follow the frozen text."""
    with database.read() as session:
        differences = frozen_differences(session, settings.benchmarks_dir)
    if differences:
        raise UnwellError(" ".join(differences))
    return "Every file of a frozen benchmark matches its frozen definition."


KEEP_SECONDS, LIMIT_SECONDS = 1.0, 2.0


class Readiness:
    """The checks with their latest findings, and whether the process is about to stop."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        times = {"keep_seconds": KEEP_SECONDS, "limit_seconds": LIMIT_SECONDS}
        self.answers = {name: BackgroundValue(ask, **times) for name, ask in checks.items()}
        self._states: dict[str, State] = {}
        self.is_draining = False

    async def look(self) -> list[CheckView]:
        """Run all checks at once."""
        return await asyncio.gather(*map(self._find, self.answers))

    def is_ready(self, findings: Sequence[CheckView]) -> bool:
        """Check whether submissions can be taken."""
        return not self.is_draining and all(finding.state != "failing" for finding in findings)

    async def _find(self, name: str) -> CheckView:
        state: State = "ok"
        why = ""
        try:
            detail = await self.answers[name].get()
        except Exception as error:  # noqa: BLE001  Any error is a finding.
            is_minor = isinstance(error, UnwellError) and error.is_minor
            state = "failing" if name in NEEDED and not is_minor else "degraded"
            # Anybody may read it. A driver's error names hosts, so only the log has it.
            detail, why = f"No response ({type(error).__name__}).", f" ({error})"
            if isinstance(error, TimeoutError):
                detail, why = f"No response within {self.answers[name].limit_seconds:g} s.", ""
            elif isinstance(error, UnwellError):
                detail, why = str(error), ""
        if state != self._states.get(name, "ok"):  # Only changes are logged.
            level = logging.INFO if state == "ok" else logging.WARNING
            log.log(level, "check %s is %s: %s%s", name, state, detail, why)
        self._states[name] = state
        return CheckView(name=name, needed=name in NEEDED, state=state, detail=detail)


@contextmanager
def drained_before_stop(readiness: Readiness, *, drain_seconds: float) -> Iterator[None]:
    """Report "draining" from SIGTERM on. The server's own handler runs `drain_seconds` later.

    A second SIGTERM stops at once. Signals are left alone outside the main thread, and in a program
    without a handler.
    """
    stop = signal.getsignal(signal.SIGTERM)
    listens = threading.current_thread() is threading.main_thread() and callable(stop)

    def drain(number: int, frame: FrameType | None) -> None:
        is_second, readiness.is_draining = readiness.is_draining, True
        assert callable(stop)  # noqa: S101  Else it is not listened to.
        if is_second or drain_seconds == 0:
            stop(number, frame)
        else:
            timer = threading.Timer(drain_seconds, lambda: stop(number, None))
            timer.daemon = True
            timer.start()

    if listens:
        signal.signal(signal.SIGTERM, drain)
    try:
        yield
    finally:
        readiness.is_draining = True
        if listens:
            signal.signal(signal.SIGTERM, stop)


router = APIRouter(tags=["health"])
NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "Submissions cannot be accepted; the same JSON gives the reasons."}
}


@router.get("/healthz")
async def check_health() -> HealthView:
    """Answer 200 while the process runs, also if the database is away."""
    return HealthView(version=VERSION)


@router.get("/readyz", responses=NOT_READY)
async def check_readiness(services: ServicesDep, response: Response) -> ReadinessView:
    """Answer 200 while submissions can be taken: the database and the artifact store answer.

    Without a broker or a worker it is 200 and "degraded", and replays wait. From the signal to stop
    on it is 503 and "draining".
    """
    readiness = services.of(Readiness)
    findings = await readiness.look()
    ready = readiness.is_ready(findings)
    if not ready:
        response.status_code = 503
    # Details may name a benchmark. The log has them too.
    if services.settings.reads != "public":
        findings = [found.model_copy(update={"detail": ""}) for found in findings]
    status: Literal["ready", "degraded", "not ready", "draining"] = "not ready"
    if readiness.is_draining:
        status = "draining"
    elif ready:
        status = "ready" if all(found.state == "ok" for found in findings) else "degraded"
    return ReadinessView(status=status, version=VERSION, checks=findings)

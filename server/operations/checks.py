"""The checks of /readyz: each asks one thing that the server stands on, and may hang."""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from server.base.artifacts import ArtifactStore
from server.base.database import Database, utc_now
from server.base.services import Services
from server.base.settings import MIB, Settings
from server.base.viewer import ORGANISER
from server.benchmarks.phase_watch import RulingDefinitions
from server.operations.figures import read_queues, read_workers
from server.operations.health_views import State
from server.verifications.dispatch import Dispatcher


class UnwellError(Exception):
    """A check found something wrong; its message may be shown to anybody."""


@dataclass(frozen=True)
class Said:
    """Result of a check that its subject answered: a sentence, and measured figures.

    A figure has a name with its unit, a sentence that explains it, and a value.
    """

    detail: str
    state: State = "ok"
    figures: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. Only one that is `needed` to take submissions can be failing."""

    name: str
    needed: bool
    state: State
    detail: str
    figures: Mapping[str, tuple[str, float]] = field(default_factory=dict)


STALE_ROUND_SECONDS = 30.0
STUCK_SECONDS = 120.0
GROW = (
    "CREATE TEMPORARY TABLE finishline_room ON COMMIT DROP AS "
    "SELECT repeat('x', 1000) FROM generate_series(1, 100)"
)


@dataclass(frozen=True)
class Check:
    """A query by name; while one that is `needed` fails, no submission can be taken."""

    name: str
    ask: Callable[[], Said]
    needed: bool


def make_checks(
    services: Services,
    dispatcher: Dispatcher,
    definitions: RulingDefinitions,
    *,
    revision: str | None,
) -> list[Check]:
    """Every check of a server that needs its database at a revision, in the order of showing."""
    settings, database = services.settings, services.database
    return [
        Check("database", partial(check_database, database, revision), needed=True),
        Check("artifacts", partial(check_artifacts, services.artifacts, settings), needed=True),
        Check("broker", partial(check_broker, dispatcher), needed=False),
        Check("dispatch", partial(check_dispatch, dispatcher), needed=False),
        Check("clock", partial(check_clock, dispatcher), needed=False),
        Check("queue", partial(check_queue, database, settings), needed=False),
        Check("definitions", partial(check_definitions, definitions), needed=False),
    ]


def check_database(database: Database, revision: str | None) -> Said:
    """The database answers, takes writes, and its schema is the one this code was written for."""
    with database.read() as session:
        found = session.scalar(text("SELECT version_num FROM alembic_version"))
        is_writable = _is_writable(session, database)
        has_room = not database.was_full or _has_room(session)
    if found != revision:
        raise UnwellError(f"The database is at revision {found}, this server needs {revision}.")
    if not is_writable:
        raise UnwellError("The database is read-only: nothing can be stored.")
    if not has_room:
        raise UnwellError("The database's disk is full: nothing can be stored.")
    database.was_full = False
    return Said(f"The database answers; it is at revision {found}.")


def _is_writable(session: Session, database: Database) -> bool:
    """Whether a file may be written to; whether a PostgreSQL is no standby and not set so.

    Asked without a lock, so that a long write of another session does not count as failure.
    """
    if not database.is_sqlite:
        return str(session.scalar(text("SHOW transaction_read_only"))) == "off"
    path = database.url.database
    return path in (None, "", ":memory:") or os.access(path, os.W_OK)


def _has_room(session: Session) -> bool:
    """Whether a table can grow. Asked only since one could not: it writes, and keeps nothing.

    A small change finds room in a full database still, so a success since proves nothing.
    """
    try:
        session.execute(text(GROW))
    except OperationalError:
        return False
    except DBAPIError:
        return True  # It may not be asked, by want of a right.
    finally:
        session.rollback()
    return True


def check_artifacts(store: ArtifactStore, settings: Settings) -> Said:
    """Logs can be written: to the folder, and to the bucket where one is named."""
    probe = store.incoming / f"check-{secrets.token_hex(8)}"
    try:
        probe.write_bytes(b"ready")
        probe.unlink()
    except OSError as error:
        raise UnwellError(f"The folder of the logs is not writable: {error.strerror}.") from error
    free_bytes = shutil.disk_usage(store.folder).free
    figures = {"artifacts_free_bytes": ("Free space for received logs.", float(free_bytes))}
    if store.bucket is not None:
        store.bucket.check()
    if free_bytes < settings.max_request_bytes:
        room = f"{free_bytes / MIB:.0f} MiB free, less than one submission may need"
        return Said(f"Logs can be written, but {room}.", "degraded", figures)
    return Said("Logs can be written.", figures=figures)


def check_broker(dispatcher: Dispatcher) -> Said:
    """The broker answers. While it is away nothing is replayed, and nothing is lost."""
    dispatcher.ask_broker()
    return Said("The broker answers.")


def check_dispatch(dispatcher: Dispatcher) -> Said:
    """The loop that sends attempts runs, and its last round ended well and not long ago."""
    seconds = dispatcher.seconds_since_round
    if not dispatcher.is_running or seconds is None:
        raise UnwellError("This process runs no dispatch of attempts.")
    figures = {"dispatch_round_age_seconds": ("Time since the last dispatch of attempts.", seconds)}
    if seconds > STALE_ROUND_SECONDS:
        return Said(f"Attempts were last looked for {seconds:.0f} s ago.", "degraded", figures)
    return Said(f"Attempts were looked for {seconds:.1f} s ago.", figures=figures)


def check_clock(dispatcher: Dispatcher) -> Said:
    """The loop that sends attempts found the database's clock where this machine's is."""
    if dispatcher.is_clock_off:
        ahead = dispatcher.clock_ahead_seconds
        word = "ahead of" if ahead > 0 else "behind"
        return Said(
            f"This machine's clock is {abs(ahead):.0f} s {word} the database's.", "degraded"
        )
    return Said("This machine and the database have the same time.")


def check_queue(database: Database, settings: Settings) -> Said:
    """Check that no attempt waits for long beside a worker that could take it."""
    with database.read(ORGANISER) as session:
        workers = read_workers(session, now=utc_now(), alive_seconds=settings.worker_alive_seconds)
        queues = read_queues(session, workers)
    queued = sum(queue.attempts for queue in queues)
    stuck_seconds = max(queue.beside_free_seconds for queue in queues)
    if stuck_seconds > STUCK_SECONDS:
        return Said(
            f"An attempt waits for {stuck_seconds:.0f} s beside an idle worker.", "degraded"
        )
    oldest_seconds = max(queue.oldest_seconds for queue in queues)
    idle = sum(worker.state == "idle" for worker in workers)
    return Said(
        f"Attempts waiting: {queued}, the oldest for {oldest_seconds:.0f} s; idle workers: {idle}."
    )


def check_definitions(definitions: RulingDefinitions) -> Said:
    """The files of frozen benchmarks are the frozen ones. Nothing is scored under another text."""
    differences = definitions.differences()
    if differences:
        return Said(" ".join(differences), "degraded")
    return Said("Every file of a frozen benchmark matches its frozen definition.")

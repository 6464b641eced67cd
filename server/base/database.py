"""The database, one per process, its transactions, and the objects that a process keeps with it.

Transactions are opened and committed at the edge. Rooms find their objects by type: an endpoint by
the services of its application, others by their session.
"""

import fcntl
import os
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from threading import Lock, RLock
from typing import Annotated, Any, TypeVar, cast

import orjson
from fastapi import Depends, Request
from sqlalchemy import (
    Connection,
    ExceptionContext,
    NullPool,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import DeclarativeBase, Mapper, Session, object_mapper

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.artifacts import ArtifactStore
from server.base.errors import no_such
from server.base.settings import Settings
from server.base.visibility import ANYBODY, VIEWER, Viewer

# Errors of a database that is away or has no free connection.
OUTAGES = (DBAPIError, PoolTimeoutError)
CONNECT_SECONDS = 5
DISK_FULL = "53100"  # As PostgreSQL names it.
# By default a SQLite connection keeps 128 statements of 40 kB and 2 MiB of pages: fourteen
# connections can grow by 90 MiB over minutes of load. The machine has the pages in memory anyway.
KEPT_STATEMENTS = 48
KEPT_PAGES_KIB = 512
# Taken in turn, all connections ever open at once would fill.
LAST_USED_FIRST = {"pool_use_lifo": True}
AFTER_COMMIT = "after_commit"
BEFORE_COMMIT = "before_commit"
# An INSERT with ON CONFLICT, by dialect.
INSERTS: dict[str, Callable[[Any], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}

WAIT_TO_WRITE = (
    "SET LOCAL idle_in_transaction_session_timeout = '60s'; "
    f"SELECT pg_advisory_xact_lock({0x66696E6973686C})"
)

ROOM_STATE = "room_state"

Kind = TypeVar("Kind")
Found = TypeVar("Found", bound=DeclarativeBase)


class RoomState:
    """One object of each type, put at the start or made without arguments at its first use."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Any], Any] = {}
        self._lock = RLock()

    def put(self, value: Kind) -> Kind:
        """Keep an object under its type, in place of an earlier one."""
        self._by_kind[type(value)] = value
        return value

    def of(self, kind: type[Kind]) -> Kind:
        """Return the object of a type. Raises TypeError if it is missing and needs arguments."""
        with self._lock:
            if kind not in self._by_kind:
                self.put(kind())
            return cast(Kind, self._by_kind[kind])


def find_row(session: Session, table: type[Found], key: object, **options: Any) -> Found:
    """Read the row of a key. Raises NotFoundError."""
    row = session.get(table, key, **options)
    if row is None:
        raise no_such(table.__tablename__.removesuffix("s"), key)
    return row


def to_json(value: Any) -> str:
    """Encode a column's value as JSON."""
    return orjson.dumps(value).decode()


class Database:
    """The engine, and sessions for reading or writing. SQLite takes one writer at a time."""

    def __init__(self, url: str, *, lock_seconds: float | None = None) -> None:
        """Make the engine. PostgreSQL waits `lock_seconds` for a lock, then raises an error."""
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        # For the threads of this process. Other processes wait in SQLite's busy loop.
        self._turn = Lock() if self.is_sqlite else nullcontext()
        # Whether PostgreSQL refused a write on a full disk. The health check clears it.
        self.was_full = False
        # Objects of the rooms, which every session finds.
        self.state = RoomState()
        self._served: int | None = None
        options: dict[str, Any] = {"json_serializer": to_json, "json_deserializer": orjson.loads}
        if self.is_sqlite:
            options["connect_args"] = {
                "check_same_thread": False,
                "timeout": 10.0,
                "cached_statements": KEPT_STATEMENTS,
            }
            if (path := self._file()) is not None:  # A database in memory has another pool.
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                options |= {"pool_size": 20, "max_overflow": 25} | LAST_USED_FIRST
        else:
            # As many as requests in work, so that a worker's post waits for no reader.
            options |= {"pool_size": 10, "max_overflow": 35} | LAST_USED_FIRST
            options["connect_args"] = {"connect_timeout": CONNECT_SECONDS}
            options["pool_pre_ping"] = True
        self.engine = create_engine(self.url, **options)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            if lock_seconds is not None:
                event.listen(self.engine, "connect", partial(_bound_locks, lock_seconds))
            event.listen(self.engine, "handle_error", self._note_full)

    def _note_full(self, context: ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == DISK_FULL:
            self.was_full = True

    def _session(self, info: dict[str, Any]) -> Session:
        return Session(self.engine, expire_on_commit=False, info=info | {ROOM_STATE: self.state})

    @contextmanager
    def read(self, viewer: Viewer = ANYBODY) -> Iterator[Session]:
        """Open a session for reading, which shows the submissions that its viewer may see.

        Changes are dropped. Read lists of a row within the block.
        """
        with self._session({VIEWER: viewer}) as session:
            yield session
            # A row and its list refer to each other, such as a submission and its verifications.
            # Expired they go at once. Else they wait for the garbage collector, and under load a
            # server grows by a tenth.
            for row in session.identity_map.values():
                if lists := _lists_tied(object_mapper(row)):
                    session.expire(row, lists)

    @contextmanager
    def read_snapshot(self, viewer: Viewer = ANYBODY) -> Iterator[Session]:
        """Open a session as `read` does, with one moment in all its statements."""
        with self._session({VIEWER: viewer}) as session:
            if not self.is_sqlite:  # Every transaction of SQLite is a snapshot.
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open the transaction that writes, committed at the end of the block or rolled back.

        Other writers wait for it, also in other server processes, so its reads stay true. Calls of
        `before_commit` run at the end of the block, calls of `after_commit` before it is left.
        """
        with self.write_beside() as session:
            wait_to_write(session)
            yield session

    @contextmanager
    def write_beside(self) -> Iterator[Session]:
        """Open a transaction to write during another, for example a heartbeat or an event.

        It decides by one conditional statement, and changes no other row that `write` decides by.
        """
        with self._turn, self._session({}) as session:
            session.connection(execution_options={"finishline_write": True})
            yield session
            for call in session.info.pop(BEFORE_COMMIT, ()):
                call()
            session.commit()
            for call in session.info.pop(AFTER_COMMIT, ()):
                call()

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Connect to a SQLite file and leave each byte as it is, whichever program made it."""
        if self._file() is None:
            with self.engine.connect() as connection:
                yield connection
            return
        # Without `_prepare_sqlite`: the file would keep its journal mode.
        with create_engine(self.url, poolclass=NullPool).connect() as connection:
            yield connection

    @property
    def name(self) -> str:
        """Its address, without the password."""
        return self.url.render_as_string(hide_password=True)

    def is_missing(self) -> bool:
        """Return whether it is an absent SQLite file, which a look at it would make."""
        path = self._file()
        return path is not None and not Path(path).exists()

    def _file(self) -> str | None:
        path = (self.url.database or "") if self.is_sqlite else ""
        return None if not path or path.startswith((":memory:", "file:")) else path

    def serve(self) -> None:
        """Become the only server process of a SQLite file. Raises RuntimeError if there is one."""
        path = self._file()
        if path is not None and self._served is None:
            self._served = _serve_alone(path)

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()
        if self._served is not None:
            os.close(self._served)
            self._served = None


def _serve_alone(path: str) -> int:
    """Lock a SQLite file until the descriptor is closed or the process ends."""
    file = os.open(f"{path}-server", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RuntimeError(
            f"another server process has {path}, and SQLite has one. Hint: stop that one, or use "
            "PostgreSQL for several processes."
        ) from None
    return file


@cache
def _lists_tied(table: Mapper[Any]) -> list[str]:
    relations = table.relationships
    return [each.key for each in relations if each.uselist and each.back_populates]


def after_commit(session: Session, call: Callable[[], None]) -> None:
    """Register a call for after the commit of a writing session's transaction."""
    session.info.setdefault(AFTER_COMMIT, []).append(call)


def before_commit(session: Session, call: Callable[[], None]) -> None:
    """Register a call for the end of a writing session's transaction. Its writes are part of it."""
    session.info.setdefault(BEFORE_COMMIT, []).append(call)


def wait_to_write(session: Session) -> None:
    """Wait for PostgreSQL's lock of writers, which a frozen process loses after 60 s."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection().exec_driver_sql(WAIT_TO_WRITE)


def insert_missing(session: Session, table: type[DeclarativeBase], **values: Any) -> None:
    """Insert a row unless its key exists, also when two transactions try at once."""
    insert = INSERTS[session.get_bind().dialect.name]
    session.execute(insert(table).values(**values).on_conflict_do_nothing())


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # The begin event below starts transactions.
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # NORMAL forgets the last commits when the power fails.
        "busy_timeout=10000",
        f"cache_size=-{KEPT_PAGES_KIB}",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _bound_locks(seconds: float, connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{seconds:g}s'")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("finishline_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def utc_now() -> datetime:
    """Return this moment in UTC."""
    return datetime.now(UTC)


def moment_text(moment: datetime) -> str:
    """Format a moment in UTC, whichever timezone the database's session answered in."""
    return moment.astimezone(UTC).isoformat()


def state_of(session: Session, kind: type[Kind]) -> Kind:
    """Return the object of a type from a session's database, as `RoomState.of` does."""
    state: RoomState = session.info[ROOM_STATE]
    return state.of(kind)


class OfferedBenchmarks(UserDict[str, Benchmark]):
    """Benchmarks in the order of their ids. They may be replaced during an iteration.

    `redefined` has the ids of changed definitions until their boards are marked as changed.
    """

    def __init__(self, benchmarks: Iterable[Benchmark] = ()) -> None:
        super().__init__()
        self.redefined: set[str] = set()
        self.replace(benchmarks)
        self.redefined.clear()

    def replace(self, benchmarks: Iterable[Benchmark]) -> None:
        """Offer exactly these benchmarks."""
        later = {one.benchmark_id: one for one in benchmarks}
        self.redefined |= {name for name in later if later[name] is not self.data.get(name)}
        self.data = dict(sorted(later.items()))


@dataclass(frozen=True)
class Services:
    """Process-wide objects of an application or a command. Rooms find their objects by type."""

    settings: Settings
    database: Database
    artifacts: ArtifactStore
    benchmarks: OfferedBenchmarks

    def __post_init__(self) -> None:
        self.put(self)

    def of(self, kind: type[Kind]) -> Kind:
        """Return a room's object of a type, as `RoomState.of` does."""
        return self.database.state.of(kind)

    def put(self, value: Kind) -> Kind:
        """Keep a room's object under its type."""
        return self.database.state.put(value)


def benchmarks_of(session: Session) -> OfferedBenchmarks:
    """Return the offered benchmarks, found by a session."""
    return state_of(session, Services).benchmarks


def services_of(request: Request) -> Services:
    """Return the services of a request's application."""
    services: Services = request.app.state.services
    return services


async def get_services(request: Request) -> Services:
    """Return the services as a dependency. It is async, because a thread would take longer."""
    return services_of(request)


ServicesDep = Annotated[Services, Depends(get_services)]


def site_address(request: Request) -> str:
    """Return the server's address as set, else as requested, without a slash at its end."""
    return (services_of(request).settings.public_url or str(request.base_url)).rstrip("/")

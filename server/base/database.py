"""Database engine, one a process, and its transactions: opened and committed at the edge only."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from threading import Lock, RLock
from typing import Any, TypeVar, cast

import orjson
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

from server.base.visibility import ANYBODY, VIEWER, Viewer

# Of a database that is away, or that has no connection free.
OUTAGES = (DBAPIError, PoolTimeoutError)
CONNECT_SECONDS = 5
DISK_FULL = "53100"  # As PostgreSQL names it.
# A connection of SQLite keeps statements, of some 40 kB, and pages of the database. With 128 and
# 2 MiB of them, as by default, fourteen connections can grow by 90 MiB over minutes of load. And
# the machine has the pages in memory anyway.
KEPT_STATEMENTS = 48
KEPT_PAGES_KIB = 512
# Taken in turn, as many connections as were ever open at once would fill.
LAST_USED_FIRST = {"pool_use_lifo": True}
AFTER_COMMIT = "after_commit"
BEFORE_COMMIT = "before_commit"
# An INSERT that may say ON CONFLICT, by the dialect of the database.
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


class RoomState:
    """One object of each type: put there at the start, or made without arguments at its first use.

    A room names its own classes, so the base knows none of them.
    """

    def __init__(self) -> None:
        self._by_kind: dict[type[Any], Any] = {}
        self._lock = RLock()

    def put(self, value: Kind) -> Kind:
        """Keep an object under its type. An earlier one of that type is replaced."""
        self._by_kind[type(value)] = value
        return value

    def of(self, kind: type[Kind]) -> Kind:
        """The object of a type. Raises TypeError if none was put there and it needs arguments."""
        with self._lock:
            if kind not in self._by_kind:
                self.put(kind())
            return cast(Kind, self._by_kind[kind])


def to_json(value: Any) -> str:
    """JSON text of a column value."""
    return orjson.dumps(value).decode()


class Database:
    """The engine, and sessions that read or write.

    SQLite takes one writer at a time. The threads of this process wait for one lock. A command
    beside the server waits in SQLite's own busy loop.
    """

    def __init__(self, url: str, *, lock_seconds: float | None = None) -> None:
        """With `lock_seconds` no statement waits longer for another's lock on PostgreSQL.

        It raises an OperationalError then. SQLite has a time of its own, of ten seconds.
        """
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._turn = Lock() if self.is_sqlite else nullcontext()
        # Whether PostgreSQL has refused a write for want of room, until somebody finds room again.
        self.was_full = False
        # Objects of the rooms that belong to this database. Every session finds them.
        self.state = RoomState()
        self._served: int | None = None
        options: dict[str, Any] = {"json_serializer": to_json, "json_deserializer": orjson.loads}
        if self.is_sqlite:
            options["connect_args"] = {
                "check_same_thread": False,
                "timeout": 10.0,
                "cached_statements": KEPT_STATEMENTS,
            }
            if (path := self._file()) is not None:  # In memory there is no such pool.
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                options |= {"pool_size": 20, "max_overflow": 25} | LAST_USED_FIRST
        else:
            # As many as requests are worked at: a worker's post does not wait for a reader's.
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
        """A session that only reads, and shows its viewer no submission that is not theirs to see.

        Nothing it changes is kept. Lists of a row are read within the block.
        """
        with self._session({VIEWER: viewer}) as session:
            yield session
            _untie(session)

    @contextmanager
    def read_snapshot(self, viewer: Viewer = ANYBODY) -> Iterator[Session]:
        """As `read`, a session that sees one moment in all its statements."""
        with self._session({VIEWER: viewer}) as session:
            if not self.is_sqlite:  # There every transaction is one.
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """The transaction that writes: committed at the end of the block, rolled back on an error.

        Others wait for it, those of other server processes too, so its reads stay true.
        Calls registered with `before_commit` run at the end of the block, those registered with
        `after_commit` before it is left.
        """
        with self.write_beside() as session:
            wait_to_write(session)
            yield session

    @contextmanager
    def write_beside(self) -> Iterator[Session]:
        """A transaction that writes while another one does: a heartbeat, an event, a sign of life.

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
        """A connection that changes no byte of a file of SQLite, whatever program made it."""
        if self._file() is None:
            with self.engine.connect() as connection:
                yield connection
            return
        # Without the settings of `_prepare_sqlite`, one of which the file keeps.
        with create_engine(self.url, poolclass=NullPool).connect() as connection:
            yield connection

    @property
    def name(self) -> str:
        """Its address, without the password."""
        return self.url.render_as_string(hide_password=True)

    def is_missing(self) -> bool:
        """Whether it is a file of SQLite that is not there, and that a look at it would make."""
        path = self._file()
        return path is not None and not Path(path).exists()

    def _file(self) -> str | None:
        path = (self.url.database or "") if self.is_sqlite else ""
        return None if not path or path.startswith((":memory:", "file:")) else path

    def serve(self) -> None:
        """Become the only server process of a SQLite file. Raises RuntimeError beside another."""
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
    """Hold a file of SQLite for this server until the descriptor is closed, or the process ends.

    Raises RuntimeError if another server process holds it.
    """
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


def _untie(session: Session) -> None:
    """Let go of the lists of rows that know the row they are listed by.

    A submission and its verifications hold each other. Untied they are gone with the last use.
    Else they wait for the garbage collector, and under load a server grows by a tenth.
    """
    for row in session.identity_map.values():
        if lists := _lists_tied(object_mapper(row)):
            session.expire(row, lists)


@cache
def _lists_tied(table: Mapper[Any]) -> list[str]:
    relations = table.relationships
    return [each.key for each in relations if each.uselist and each.back_populates]


def after_commit(session: Session, call: Callable[[], None]) -> None:
    """Call something once the transaction of a writing session is committed, else never."""
    session.info.setdefault(AFTER_COMMIT, []).append(call)


def before_commit(session: Session, call: Callable[[], None]) -> None:
    """Register a call for the end of a writing session's transaction. Its writes are part of it."""
    session.info.setdefault(BEFORE_COMMIT, []).append(call)


def wait_to_write(session: Session) -> None:
    """Wait until no other transaction has called this. SQLite has one writer by itself.

    A process that freezes in its transaction loses it, so that others need not wait for ever.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.connection().exec_driver_sql(WAIT_TO_WRITE)


def insert_missing(session: Session, table: type[DeclarativeBase], **values: Any) -> None:
    """Insert a row unless one with its key is there, also when two transactions try at once."""
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
    """This moment, in UTC."""
    return datetime.now(UTC)


def moment_text(moment: datetime) -> str:
    """A moment as text, the same whatever timezone a database's session answers in."""
    return moment.astimezone(UTC).isoformat()


def state_of(session: Session, kind: type[Kind]) -> Kind:
    """The object of a type that belongs to a session's database, as `RoomState.of`."""
    state: RoomState = session.info[ROOM_STATE]
    return state.of(kind)

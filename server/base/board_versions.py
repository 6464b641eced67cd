"""Versions of boards, and what is cached by them: values of their rows, and encoded boards.

A version is raised in the same transaction as a board's change. A cached board is sent only if a
read of the database that began after the request confirms its version. So each server process shows
a write as soon as it is acknowledged.
"""

import re
import sqlite3
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.database import INSERTS, OUTAGES, Database, state_of
from server.base.http import FOR_PAGES, RequestMetrics, is_known, is_open_to_pages, takes_gzip
from server.base.models import Board, BoardChange
from server.base.visibility import ANYBODY, seeing

_Value = TypeVar("_Value")
Versions = dict[str, int]
# A board is read whole after so many changes.
MOST_CHANGES = 200
# Weight of a value without a `weight`. Rows, boards and curves have one.
USUAL_KIB = 64
MOST_KIB = 300 * 1024
VERSIONS = "SELECT benchmark_id, version FROM boards"
_RAISING = {
    dialect: upsert(Board)
    .on_conflict_do_update(index_elements=["benchmark_id"], set_={"version": Board.version + 1})
    .returning(Board.version)
    for dialect, upsert in INSERTS.items()
}
_NOTE = insert(BoardChange)


def raise_board_version(
    session: Session, benchmark_id: str, *, submission_id: str | None = None
) -> None:
    """Mark a benchmark's boards as changed, in the transaction of the change.

    `submission_id` is the only changed submission, with its runs and published verdict.
    """
    raising = _RAISING[session.get_bind().dialect.name]
    first = {"benchmark_id": benchmark_id, "version": 1}
    version = session.connection().execute(raising, first).scalar_one()
    if submission_id is None:
        return
    values = {"benchmark_id": benchmark_id, "version": version, "submission_id": submission_id}
    session.connection().execute(_NOTE, values)
    if version % MOST_CHANGES == 0:  # Once in a while the oldest are deleted.
        old = BoardChange.version <= version - MOST_CHANGES
        session.execute(
            delete(BoardChange)
            .where(BoardChange.benchmark_id == benchmark_id, old)
            .execution_options(synchronize_session=False)
        )


def raise_all_board_versions(session: Session) -> None:
    """Mark all boards as changed, for example after a price, which may concern any submission."""
    for benchmark_id in session.scalars(select(Board.benchmark_id)):
        raise_board_version(session, benchmark_id)


def board_version(session: Session, benchmark_id: str) -> int:
    """Return the version of a benchmark's boards, 0 before the first submission."""
    version = session.scalar(select(Board.version).where(Board.benchmark_id == benchmark_id))
    return version or 0


def board_versions(session: Session) -> dict[str, int]:
    """Return the board version of each benchmark with a submission."""
    return {row.benchmark_id: row.version for row in session.execute(select(Board.__table__))}


def changes_between(
    session: Session, benchmark_id: str, earlier: int, later: int
) -> set[str] | None:
    """Return the submissions changed after one version up to another.

    Return None if a version between changed several submissions, or is too old.
    """
    if not 0 <= later - earlier <= MOST_CHANGES:
        return None
    statement = select(BoardChange.submission_id).where(
        BoardChange.benchmark_id == benchmark_id,
        BoardChange.version > earlier,
        BoardChange.version <= later,
    )
    changed = session.scalars(statement).all()
    return set(changed) if len(changed) == later - earlier else None


class VersionReader:
    """Reads all boards' versions: SQLite in the event loop (microseconds), others in a thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sqlite: Any = None

    async def read(self) -> Versions | None:
        """Read the versions of this moment. Returns None while the database is away."""
        if self._database.is_sqlite:
            return self.read_now()
        return await run_in_threadpool(self.read_now)

    def read_now(self) -> Versions | None:
        """Read the versions in this thread. Returns None while the database is away."""
        try:
            if not self._database.is_sqlite:
                with self._database.engine.connect() as connection:
                    rows: Any = connection.exec_driver_sql(VERSIONS).all()
                    return dict(rows)
            if self._sqlite is None:
                self._sqlite = self._database.engine.raw_connection()
            return dict(self._sqlite.cursor().execute(VERSIONS).fetchall())
        except (*OUTAGES, sqlite3.Error):
            return None

    def close(self) -> None:
        """Return its connection."""
        if self._sqlite is not None:
            self._sqlite.close()
            self._sqlite = None


class BoardValues:
    """Values derived from the submissions of one benchmark: the latest by benchmark and name.

    Each has the board version it was made for, and may have a `weight` (KiB). Together they weigh
    at most `most`, and the longest unused go first. One thread makes a value while others wait for
    it. Only reading sessions may use it: after a rollback in a writing session, other changes would
    get the version of the value.
    """

    def __init__(self, most: int = MOST_KIB) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._makers: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    def get(
        self, key: Hashable, version: int, make: Callable[[tuple[int, Any] | None], _Value]
    ) -> _Value:
        """Return a version's value. `make` gets the cached value and its version, if any."""
        with self._lock:
            maker = self._makers[key]
        with maker:
            found = self.latest(key)
            if found is not None and found[0] == version:
                return cast(_Value, found[1])
            value = make(found)
            with self._lock:
                self._values[key] = version, value
                self._values.move_to_end(key)
                # Weighed each time: a value may grow while it is used.
                weight = sum(_weight(one) for _, one in self._values.values())
                while weight > self._most and len(self._values) > 1:
                    weight -= _weight(self._values.popitem(last=False)[1][1])
        return value

    def latest(self, key: Hashable) -> tuple[int, Any] | None:
        """Return the cached value with its version."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)


def _weight(value: object) -> int:
    weight: int = getattr(value, "weight", USUAL_KIB)
    return weight


def cached_for_board(
    session: Session,
    benchmark_id: str,
    name: str,
    make: Callable[[], _Value],
    *,
    version: int | None = None,
) -> _Value:
    """Return the value of `make`, cached per version of a benchmark's boards.

    `make` may read only the benchmark's submissions, their runs and published verifications, as
    anybody sees them, in a reading session. The value is shared: leave it unchanged. `version`
    saves the statement for it.
    """
    if version is None:
        version = board_version(session, benchmark_id)
    return cached_since(session, benchmark_id, name, lambda _earlier: make(), version=version)


def cached_since(
    session: Session,
    benchmark_id: str,
    name: str,
    make: Callable[[tuple[int, _Value] | None], _Value],
    *,
    version: int,
) -> _Value:
    """Cache as `cached_for_board` does. `make` gets the value of an earlier version, if any."""
    with seeing(session, ANYBODY):
        return state_of(session, BoardValues).get((benchmark_id, name), version, make)


Headers = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes, bool]

BOARD = re.compile(r"/(?:api/v1/leaderboards|benchmarks)/[^/]+")
HINT = "finishline.cache_hint"
MOST_BYTES = 64 * 1024 * 1024
OVERHEAD_BYTES = 3000  # Of an entry, without its body.
LONGEST_QUERY = 2000
OF_ONE_RESPONSE = frozenset({b"x-request-id", *dict(FOR_PAGES)})
PERSONAL = frozenset({b"set-cookie", b"connection"})
# "304 Not Modified" leaves these out: the reader has them with the content.
OF_CONTENT = frozenset(
    b"content-length content-type content-encoding x-content-type-options referrer-policy "
    b"content-security-policy".split()
)


@dataclass
class CacheHint:
    """Marks a response as a board for every reader. The endpoint fills it in."""

    benchmark_id: str | None = None
    version: int = 0
    etag: str = ""


def hint_of(scope: Scope) -> CacheHint:
    """Return the hint of a request, or an unused one."""
    return cast(CacheHint, scope.get(HINT) or CacheHint())


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached board in one encoding."""

    hint: CacheHint
    headers: Headers
    body: bytes

    @property
    def weight(self) -> int:
        """Bytes in memory."""
        return len(self.body) + OVERHEAD_BYTES

    async def send(self, scope: Scope, send: Send) -> int:
        """Send the board, or "304 Not Modified" if the reader has it. Returns the status."""
        status, sent, body = 200, self.headers, self.body
        if is_known(scope, self.hint.etag):
            status, body = 304, b""
            sent = tuple(item for item in sent if item[0] not in OF_CONTENT)
        if is_open_to_pages(scope):
            sent += FOR_PAGES
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})
        return status


class BoardCache:
    """Sends current cached boards, else calls the application. One event loop needs no lock."""

    def __init__(self, app: ASGIApp, reader: VersionReader, metrics: RequestMetrics) -> None:
        self._app = app
        self._reader = reader
        self._metrics = metrics
        self._bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        entry = await self._current(key)
        if entry is not None:
            status = await entry.send(scope, send)
            self._metrics.cached_boards.labels(str(status)).inc()
            return
        made = await self._make(key, scope, receive, send)
        if made is not None:
            await made.send(scope, send)

    async def _current(self, key: Key) -> Entry | None:
        if key not in self._entries:
            return None
        versions = await self._reader.read()
        entry = self._entries.get(key)  # Another request may have made it anew meanwhile.
        if not versions or entry is None:
            return None
        if versions.get(entry.hint.benchmark_id or "", 0) != entry.hint.version:
            return None
        self._entries.move_to_end(key)
        return entry

    async def _make(self, key: Key, scope: Scope, receive: Receive, send: Send) -> Entry | None:
        """Let the application answer. A board is cached and returned, other responses are sent."""
        made: Entry | None = None
        hint, start = CacheHint(), None
        # The whole response is cached, even if this reader has it already.
        whole = [item for item in scope["headers"] if item[0] != b"if-none-match"]
        asked = dict(scope, headers=whole) | {HINT: hint}

        async def record(message: Message) -> None:
            nonlocal start, made
            if message["type"] == "http.response.start" and _is_board(message, hint):
                start = message
                return
            if start is not None:
                begun, start = start, None
                if not message.get("more_body", False):
                    headers = tuple(h for h in begun["headers"] if h[0] not in OF_ONE_RESPONSE)
                    made = Entry(hint, headers, message["body"])
                    self._keep(key, made)
                    return
                await send(begun)
            await send(message)

        await self._app(asked, receive, record)
        return made

    def _keep(self, key: Key, entry: Entry) -> None:
        earlier = self._entries.pop(key, None)
        self._bytes += entry.weight - (0 if earlier is None else earlier.weight)
        self._entries[key] = entry
        while self._bytes > MOST_BYTES:
            self._bytes -= self._entries.popitem(last=False)[1].weight


def _is_board(start: Message, hint: CacheHint) -> bool:
    is_whole = start["status"] == 200 and hint.benchmark_id is not None
    return is_whole and not PERSONAL & dict(start["headers"]).keys()


def _key(scope: Scope) -> Key | None:
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    has_body = any(
        name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
    )
    is_board = BOARD.fullmatch(scope["path"]) is not None
    if has_body or not is_board or len(scope["query_string"]) > LONGEST_QUERY:
        return None
    return scope["path"], scope["query_string"], takes_gzip(scope)

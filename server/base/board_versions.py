"""Versions of boards: every write that can change a board raises its version.

The database decides: a version is raised in the transaction that changes the board, and anything
derived from a board is cached for one version of it.
"""

import sqlite3
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from server.base.database import INSERTS, OUTAGES, Database, state_of
from server.base.models import Board, BoardChange
from server.base.visibility import ANYBODY, seeing

_Value = TypeVar("_Value")
Versions = dict[str, int]
# A board that has changed this often since it was read may as well be read whole.
MOST_CHANGES = 200
# Values without a weight weigh this much. Rows, boards and curves say theirs.
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
    """Mark a benchmark's boards as changed, in the transaction that changes them.

    `submission_id` names the only submission that changed, with its runs and its published
    verdict. Readers then read that one again and no other.
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
    """Mark every benchmark's boards as changed: by a price, which may be of any submission."""
    for benchmark_id in session.scalars(select(Board.benchmark_id)):
        raise_board_version(session, benchmark_id)


def board_version(session: Session, benchmark_id: str) -> int:
    """The version of a benchmark's boards, 0 before the first submission."""
    version = session.scalar(select(Board.version).where(Board.benchmark_id == benchmark_id))
    return version or 0


def board_versions(session: Session) -> dict[str, int]:
    """The version of every benchmark's boards. One without a submission is left out."""
    return {row.benchmark_id: row.version for row in session.execute(select(Board.__table__))}


def changes_between(
    session: Session, benchmark_id: str, earlier: int, later: int
) -> set[str] | None:
    """The submissions that changed after one version up to another.

    None where a version between them changed more than one, or is too long ago.
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
    """Reads the versions of all boards.

    SQLite answers from memory within microseconds, so the event loop reads it. PostgreSQL is read
    in a thread.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sqlite: Any = None

    async def read(self) -> Versions | None:
        """The versions as they are after this moment. None while the database is away."""
        if self._database.is_sqlite:
            return self.read_now()
        return await run_in_threadpool(self.read_now)

    def read_now(self) -> Versions | None:
        """The versions. None while the database is away."""
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
        """Give its connection back."""
        if self._sqlite is not None:
            self._sqlite.close()
            self._sqlite = None


class BoardValues:
    """Values derived from the submissions of one benchmark, by benchmark and name.

    Each is the latest, with the version of the board that it was made for. It may have a `weight`.
    Together they weigh at most `most`, and the longest unused go. Of one key one thread makes a
    value while the others wait for it. For sessions that only read: a writing one may see changes
    that are rolled back, and their version be given to other changes.
    """

    def __init__(self, most: int = MOST_KIB) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._makers: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    def get(
        self, key: Hashable, version: int, make: Callable[[tuple[int, Any] | None], _Value]
    ) -> _Value:
        """The value of a version. `make` gets the cached one with its version, if there is any."""
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
        """The cached value with its version, whichever that is."""
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
    """The value of `make`, cached for each version of a benchmark's boards.

    For values derived from the submissions of one benchmark, their runs and their published
    verifications alone, as anybody sees them. `version` saves the statement that asks for it. The
    session must be one that only reads. The value is shared, so nobody may change it.
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
    """The same, made from the value of an earlier version if there is one."""
    with seeing(session, ANYBODY):
        return state_of(session, BoardValues).get((benchmark_id, name), version, make)

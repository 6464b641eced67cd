"""Versions of boards: every write that can change a board raises its version.

The database decides: a version is raised in the transaction that changes the board, and anything
derived from a board is cached for one version of it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.orm import Session

from server.database import INSERTS, after_commit
from server.models import Board, BoardChange
from server.viewer import seeing_as_anybody

_Derived = TypeVar("_Derived")
# A board that has changed this often since it was read may as well be read whole.
MOST_CHANGES = 200
MOST_DERIVED = 2000
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

    `submission_id` names the only submission that changed, with its runs and what is published of
    it; readers then read that one again and no other.
    """
    # What was changed is written first: whoever locks a submission raises its board's version
    # after that, and on PostgreSQL the other order would have two of them wait for each other.
    session.flush()
    raising = _RAISING[session.get_bind().dialect.name]
    first = {"benchmark_id": benchmark_id, "version": 1}
    version = session.connection().execute(raising, first).scalar_one()
    if submission_id is not None:
        _note_change(session, benchmark_id, version, submission_id)
    known = known_versions_of(session)
    after_commit(session, lambda: known.note_write(benchmark_id, version))


def raise_all_board_versions(session: Session) -> None:
    """Mark every benchmark's boards as changed: by a price, which may be of any submission."""
    for benchmark_id in sorted(session.scalars(select(Board.benchmark_id))):
        raise_board_version(session, benchmark_id)


def board_version(session: Session, benchmark_id: str) -> int:
    """The version of a benchmark's boards, 0 before the first submission."""
    version = session.scalar(select(Board.version).where(Board.benchmark_id == benchmark_id))
    return version or 0


def board_versions(session: Session) -> dict[str, int]:
    """The version of every benchmark's boards; one without a submission is left out."""
    return {row.benchmark_id: row.version for row in session.execute(select(Board.__table__))}


def _note_change(session: Session, benchmark_id: str, version: int, submission_id: str) -> None:
    """Store which submission a version changed; once in a while the oldest are deleted."""
    values = {"benchmark_id": benchmark_id, "version": version, "submission_id": submission_id}
    session.connection().execute(_NOTE, values)
    if version % MOST_CHANGES == 0:
        session.execute(
            delete(BoardChange)
            .where(
                BoardChange.benchmark_id == benchmark_id,
                BoardChange.version <= version - MOST_CHANGES,
            )
            .execution_options(synchronize_session=False)
        )


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


class _Derivations:
    """The latest value of each name, with the version of the board that it was derived from."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, version: int, make: Callable[[], _Derived]) -> _Derived:
        """The cached value if it is of this version, else a new one."""
        with self._lock:
            found = self._values.get(key)
        if found is not None and found[0] == version:
            return cast(_Derived, found[1])
        value = make()
        with self._lock:
            self._values[key] = version, value
            self._values.move_to_end(key)
            while len(self._values) > MOST_DERIVED:
                self._values.popitem(last=False)
        return value


_derived: WeakKeyDictionary[Engine, _Derivations] = WeakKeyDictionary()


def cached_for_board(
    session: Session,
    benchmark_id: str,
    name: str,
    make: Callable[[], _Derived],
    *,
    version: int | None = None,
) -> _Derived:
    """The value of `make`, cached for each version of a benchmark's boards.

    For values derived from the submissions of one benchmark, their runs and their published
    verifications alone, as anybody sees them. `version` saves the statement that asks for it. The
    session must be one that only reads; the value is shared, so nobody may change it.
    """
    if version is None:
        version = board_version(session, benchmark_id)
    with _making:
        derivations = _derived.setdefault(cast(Engine, session.get_bind()), _Derivations())
    with seeing_as_anybody(session):
        return derivations.get((benchmark_id, name), version, make)


# What another process writes is seen here after at most this long.
FRESH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Known:
    """A committed version; the times are of time.monotonic()."""

    version: int
    asked_at: float
    noted_at: float


class KnownVersions:
    """The committed versions of one database's boards.

    They are told by whoever reads one and by each write of this process after its commit, so that
    whoever asks after a write was acknowledged finds its version or a later one.
    """

    def __init__(self, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self.fresh_seconds = fresh_seconds
        self._boards: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def is_current(self, benchmark_id: str, version: int, now: float) -> bool:
        """Whether a board has this version, by knowledge fresh at this time.monotonic()."""
        known = self._boards.get(benchmark_id)
        return (
            known is not None
            and known.version == version
            and now - known.asked_at <= self.fresh_seconds
        )

    def is_latest(self, benchmark_id: str, version: int) -> bool:
        """Whether a board had this version when it was last asked for, however long ago."""
        known = self._boards.get(benchmark_id)
        return known is not None and known.version == version

    def note(self, benchmark_id: str, version: int, *, asked_at: float) -> None:
        """A version that a read found which began at `asked_at`."""
        with self._lock:
            self._note(benchmark_id, version, asked_at)

    def note_all(self, versions: Mapping[str, int], *, asked_at: float) -> None:
        """What one statement found of all boards; one that is left out has version 0."""
        with self._lock:
            for benchmark_id in self._boards.keys() | versions.keys():
                self._note(benchmark_id, versions.get(benchmark_id, 0), asked_at)

    def note_write(self, benchmark_id: str, version: int) -> None:
        """A version that this process has committed; what else is known grows no fresher by it."""
        with self._lock:
            known = self._boards.get(benchmark_id)
            self._note(benchmark_id, version, known.asked_at if known is not None else 0.0)

    def _note(self, benchmark_id: str, version: int, asked_at: float) -> None:
        """Keep the later version: a read that began before it was noted may have found an older
        one. A lower one found after that is the truth: the database was restored from a copy.
        """
        known = self._boards.get(benchmark_id)
        if known is None or version > known.version or asked_at > known.noted_at:
            self._boards[benchmark_id] = _Known(version, asked_at, time.monotonic())
        elif version == known.version and asked_at > known.asked_at:
            self._boards[benchmark_id] = _Known(version, asked_at, known.noted_at)


_known: WeakKeyDictionary[Engine, KnownVersions] = WeakKeyDictionary()
_making = threading.Lock()


def known_versions(engine: Engine) -> KnownVersions:
    """What this process knows of the boards of a database."""
    with _making:
        known = _known.get(engine)
        if known is None:
            known = _known[engine] = KnownVersions()
        return known


def known_versions_of(session: Session) -> KnownVersions:
    """What this process knows of the boards of a session's database."""
    return known_versions(cast(Engine, session.get_bind()))

"""The version of a board: every write that can change a board raises it."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import INSERTS, after_commit
from server.leaderboard.changes import note_change
from server.leaderboard.memory import memory_of
from server.leaderboard.versions import known_versions_of
from server.models import Board
from server.submissions.visibility import seeing_as_anybody

_Derived = TypeVar("_Derived")
_RAISING = {
    dialect: insert(Board)
    .on_conflict_do_update(index_elements=["benchmark_id"], set_={"version": Board.version + 1})
    .returning(Board.version)
    for dialect, insert in INSERTS.items()
}


def raise_board_version(
    session: Session, benchmark_id: str, *, submission_id: str | None = None
) -> None:
    """Mark a benchmark's boards as changed, in the transaction that changes them.

    The readers of this process know it from the moment of the commit. Where all that changed is
    one submission, its runs and what is published of it, its id saves them reading the others.
    """
    # What was changed is written first: whoever locks a submission raises its board's version
    # after that, and on PostgreSQL the other order would have two of them wait for each other.
    session.flush()
    raising = _RAISING[session.get_bind().dialect.name]
    first = {"benchmark_id": benchmark_id, "version": 1}
    version = session.connection().execute(raising, first).scalar_one()
    if submission_id is not None:
        note_change(session, benchmark_id, version, submission_id)
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


def kept_for_board(
    session: Session,
    benchmark_id: str,
    name: str,
    make: Callable[[], _Derived],
    *,
    version: int | None = None,
) -> _Derived:
    """What `make` returns, made once for each version of a benchmark's boards.

    For whatever is derived from the submissions of one benchmark, their runs and their published
    verifications alone, as anybody sees them. `version` saves the statement that asks for it. The
    session must be one that only reads; the value is shared, so nobody may change it.
    """
    if version is None:
        version = board_version(session, benchmark_id)
    with seeing_as_anybody(session):
        return memory_of(session).derived.get((benchmark_id, name), version, make)

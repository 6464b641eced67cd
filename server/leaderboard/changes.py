"""Which submission each of a board's latest versions changed, whichever process wrote it."""

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from server.models import BoardChange

# A board that has changed this often since it was read may as well be read whole.
MOST_VERSIONS = 200

_NOTE = insert(BoardChange)


def note_change(session: Session, benchmark_id: str, version: int, submission_id: str) -> None:
    """Keep, with the version that a transaction gives a board, what it changed.

    Once in so many versions those before them are dropped.
    """
    values = {"benchmark_id": benchmark_id, "version": version, "submission_id": submission_id}
    session.connection().execute(_NOTE, values)
    if version % MOST_VERSIONS == 0:
        session.execute(
            delete(BoardChange)
            .where(
                BoardChange.benchmark_id == benchmark_id,
                BoardChange.version <= version - MOST_VERSIONS,
            )
            .execution_options(synchronize_session=False)
        )


def changes_between(
    session: Session, benchmark_id: str, earlier: int, later: int
) -> set[str] | None:
    """The submissions that changed after one version up to another.

    None where a version between them changed more than one, or is too long ago.
    """
    if not 0 <= later - earlier <= MOST_VERSIONS:
        return None
    statement = select(BoardChange.submission_id).where(
        BoardChange.benchmark_id == benchmark_id,
        BoardChange.version > earlier,
        BoardChange.version <= later,
    )
    changed = session.scalars(statement).all()
    return set(changed) if len(changed) == later - earlier else None

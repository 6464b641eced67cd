"""After a loss of power: files of stored submissions go to where they had been moved to.

A submission is acknowledged once its files are on the disk in the store's waiting room, were moved
to their places, and its rows are committed. The disk writes that they were moved when it likes: to
wait for that, six folders for a submission, would hold up everybody who waits for the database.
Where the power fails before, the rows tell which files belong to them.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, select

from server.artifacts import ArtifactStore
from server.database import Database
from server.models import RunRow, Submission

# SQLite takes no more than 32,766 values in a statement.
HASHES_AT_ONCE = 20_000

log = logging.getLogger(__name__)


def move_what_waits(database: Database, store: ArtifactStore) -> int:
    """Move what waits in a store, and what a row names, to where it is looked for; how many.

    A file that no row names, or that was not written to its end, stays. Requests to other processes
    go on meanwhile: what they have staged is in no row yet.
    """
    waiting = {} if store.bucket is not None else _hashes(store.incoming)
    lost = {sha256: path for sha256, path in waiting.items() if not store.path_of(sha256).exists()}
    if not lost:
        return 0
    with database.read_columns() as connection:
        found = _named(connection, lost)
    for sha256 in found:
        with suppress(FileNotFoundError):  # Another process starts too, or has just moved its own.
            store.move_in(lost[sha256], sha256)
        log.warning("%s: moved from incoming/ to its place; a submission names it", sha256)
    return len(found)


def _hashes(folder: Path) -> Mapping[str, Path]:
    """The files of a folder by the SHA-256 of their content."""
    hashes = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError), path.open("rb") as file:
            hashes[hashlib.file_digest(file, "sha256").hexdigest()] = path
    return hashes


def _named(connection: Connection, hashes: Collection[str]) -> set[str]:
    """Which of some hashes a row has, as that of a log or of a claim."""
    wanted, named = sorted(hashes), set[str]()
    for start in range(0, len(wanted), HASHES_AT_ONCE):
        some = wanted[start : start + HASHES_AT_ONCE]
        for column in (RunRow.log_sha256, Submission.claim_sha256):
            named |= set(connection.scalars(select(column).where(column.in_(some))))
    return named

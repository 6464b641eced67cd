"""The store against the rows: every file that a row names is there with its hash, and what else."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, select

from finishline.rules.text import count_text
from server.artifacts import CHUNK_BYTES, ArtifactStore
from server.errors import UnavailableError
from server.exports.logs import list_logs
from server.exports.progress import Progress, silent
from server.integrity.findings import Findings
from server.models import RunRow, Submission

# A file is in the store a moment before its row is in the database.
YOUNG_SECONDS = 3600.0


@dataclass(frozen=True)
class Stored:
    """A file of the store: its name, and how long ago it came."""

    name: str
    age_seconds: float


def check_files(
    connection: Connection, store: ArtifactStore, findings: Findings, say: Progress = silent
) -> None:
    """Read every file that a row of a snapshot names; list what no row names."""
    size = 0
    for name, is_named, stored in side_by_side(list_logs(connection), stored_files(store)):
        if not is_named:
            if stored is not None and stored.age_seconds > YOUNG_SECONDS:
                findings.orphan(f"{name}: no row names this file")
            continue
        findings.count("files")
        try:
            with closing(store.open(name)) as file:
                digest = hashlib.sha256()
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
        except (OSError, UnavailableError) as error:
            findings.fault(
                f"{name}: cannot be read ({error}); named by {named_by(connection, name)}"
            )
            continue
        if digest.hexdigest() != name:
            findings.fault(
                f"{name}: its content has hash {digest.hexdigest()}; "
                f"named by {named_by(connection, name)}"
            )
        say(f"{count_text(findings.looked_at['files'], 'file')}, {size / 1e6:.0f} MB")


def named_by(connection: Connection, sha256: str) -> str:
    """A submission, or a run of one, whose file it is."""
    run = connection.execute(
        select(RunRow.submission_id, RunRow.file).where(RunRow.log_sha256 == sha256).limit(1)
    ).first()
    if run is not None:
        return f"submission {run.submission_id} as {run.file}"
    claim = select(Submission.id).where(Submission.claim_sha256 == sha256).limit(1)
    return f"submission {connection.scalar(claim)} as its claim"


def stored_files(store: ArtifactStore) -> Iterator[Stored]:
    """Every file of a store, in the order of the names; those on their way in are left out."""
    if store.bucket is not None:
        now = time.time()
        for name, changed in store.bucket.list_all():
            yield Stored(name, now - changed)
        return
    for folder in sorted(store.folder.iterdir()):
        if folder == store.incoming or not folder.is_dir():
            continue
        now = time.time()
        for path in sorted(folder.iterdir()):
            yield Stored(path.name, now - path.lstat().st_mtime)


def side_by_side(
    named: Iterable[str], stored: Iterable[Stored]
) -> Iterator[tuple[str, bool, Stored | None]]:
    """Two sorted lists as one: each name, whether a row names it, and the file if there is one.

    Neither is ever in memory: there may be millions.
    """
    rows: Iterator[tuple[str, Stored | None]] = ((name, None) for name in named)
    files: Iterator[tuple[str, Stored | None]] = ((file.name, file) for file in stored)
    merged = merge(rows, files, key=itemgetter(0))
    for name, entries in groupby(merged, key=itemgetter(0)):
        found = [file for _, file in entries]
        yield name, None in found, next((file for file in found if file is not None), None)

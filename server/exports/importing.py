"""An export into an empty server: the same ids, boards, records and proofs."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from server.artifacts import ArtifactStore
from server.dependencies import Parts
from server.errors import ConflictError
from server.exports.folders import opened_folder
from server.exports.loading import load_tables, require_empty
from server.exports.logs import copy_logs, size_in
from server.exports.manifest import Manifest
from server.exports.progress import Progress, now_and_then, silent
from server.exports.verify import Export, verified_export
from server.revision import current_revision


def import_export(parts: Parts, path: Path, say: Progress = silent) -> Manifest:
    """Make an empty, migrated database and a store from an export.

    Everything is checked first. Raises ContentError, RuleError or ConflictError saying what is
    wrong; then the database is as it was, and so is a store in a folder.
    """
    with opened_folder(path) as folder:
        _require_schema_and_room(parts, None)
        export = verified_export(folder, now_and_then(say, what="checked"))
        _require_schema_and_room(parts, export.manifest)
        with removed_on_failure(parts.artifacts) as added, parts.database.write() as session:
            connection = session.connection()
            require_empty(connection, what="An export")
            load_tables(connection, export, now_and_then(say, what="imported"))
            copy_logs(
                (sha256 for sha256, _ in export.logs()),
                export.open_log,
                parts.artifacts,
                known=size_in(parts.artifacts),
                on_kept=lambda sha256, _, is_new: added(sha256) if is_new else None,
                progress=now_and_then(say, what="logs"),
            )
        for line in differing_benchmarks(export, parts.settings.benchmarks_dir):
            say(line)
    return export.manifest


def _require_schema_and_room(parts: Parts, manifest: Manifest | None) -> None:
    """Raise ConflictError unless the database is empty and at the revision of an export."""
    found = current_revision(parts.database)
    wanted = manifest.schema_revision if manifest is not None else found
    if found is None or found != wanted:
        raise ConflictError(
            f"The database is at revision {found or '(empty)'}"
            + (f" and the export was made at {wanted}" if manifest is not None else "")
            + f": run 'python -m server.admin migrate {wanted or ''}".rstrip()
            + "' on an empty database, import, then migrate to the newest."
        )
    with parts.database.read() as session:
        require_empty(session.connection(), what="An export")


@contextmanager
def removed_on_failure(store: ArtifactStore) -> Iterator["Added"]:
    """Remove from a store's folder what was noted as added, if the block does not end well.

    A bucket keeps it, where nothing refers to it.
    """
    with TemporaryFile("w+") as names:
        try:
            yield Added(names)
        except BaseException:
            names.seek(0)
            for sha256 in names:
                store.path_of(sha256.rstrip("\n")).unlink(missing_ok=True)
            raise


class Added:
    """Notes names in a file: there may be a million of them."""

    def __init__(self, names: IO[str]) -> None:
        self._names = names

    def __call__(self, sha256: str) -> None:
        """Note one."""
        self._names.write(f"{sha256}\n")


def differing_benchmarks(export: Export, benchmarks_dir: Path) -> Iterator[str]:
    """A line for each definition in an export that this server has not, or has otherwise."""
    for name, part in sorted(export.manifest.files.items()):
        if not name.startswith("benchmarks/"):
            continue
        try:
            content = (benchmarks_dir / Path(name).name).read_bytes()
        except OSError:
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != part.sha256:
            yield (
                f"{name} of the export is not as in {benchmarks_dir}: boards follow the latter. "
                "Copy it there, or name the export's folder with FINISHLINE_BENCHMARKS_DIR."
            )

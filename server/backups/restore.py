"""A server from a backup: built beside what is there, then put in its place in one step."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from finishline.rules.errors import RuleError
from server.artifacts import ArtifactStore
from server.backups.database_part import SQLITE_FILE
from server.backups.loading import load_tables
from server.backups.log_files import check_log_files, check_plain, listed_logs, refuse
from server.backups.places import Place, place_of
from server.backups.service import KEY, POOL, find_backup
from server.database import Database, utc_now
from server.dependencies import Parts
from server.errors import ConflictError, ContentError
from server.exports.folders import only_one, sync
from server.exports.logs import copy_logs, size_in
from server.exports.manifest import BACKUP_FORMAT, Manifest, check_files, file_part, read_manifest
from server.exports.progress import Progress, now_and_then, silent
from server.schema import migrate


def restore(
    parts: Parts, root: Path, *, name: str | None = None, force: bool = False,
    say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Make the database, the key and the logs as a backup has them; the latest if none is named.

    Everything is checked first. What was there is kept under another name, and only with `force`
    replaced. Raises ConflictError, ContentError, NotFoundError or RuleError; then database and key
    are as they were, and so is a store in a folder.
    """
    folder = find_backup(root, name)
    with only_one(root, what="backup or restore"):
        manifest = _verified(folder, root, say)
        place = place_of(parts.database)
        _require_free(parts, place, folder, force=force)
        with _removed_on_failure(parts.artifacts) as added, place.beside() as database:
            _fill(database, folder, manifest, say)
            _restore_logs(parts, folder, root, manifest, added, say)
            with _replaced_key(parts.settings.signing_key_path, folder / KEY, say):
                kept = place.swap(database)
        if kept is not None:
            say(f"What was there is kept as {kept}; remove it once all is well.")
    return folder, manifest


def _verified(folder: Path, root: Path, say: Progress) -> Manifest:
    refuse(check_plain(folder), folder)
    manifest = read_manifest(folder, wanted=BACKUP_FORMAT)
    refuse(check_files(folder, manifest), folder)
    progress = now_and_then(say, what="checked")
    refuse(check_log_files(folder, manifest, root / POOL, progress), folder)
    return manifest


def _require_free(parts: Parts, place: Place, folder: Path, *, force: bool) -> None:
    """Raise ConflictError if something would be replaced and that is not wanted."""
    filled = place.filled()
    if filled is not None and not force:
        raise ConflictError(
            f"{filled}; a restore would replace it. With --force it does, and keeps what was there."
        )
    key = parts.settings.signing_key_path
    if key.exists() and file_part(key) != file_part(folder / KEY) and not force:
        raise ConflictError(
            f"{key} is another key than the backup's. With --force it is replaced, and kept."
        )
    place.require_unused()


def _fill(database: Database, folder: Path, manifest: Manifest, say: Progress) -> None:
    """The backup's database in an empty one that nobody uses yet."""
    if manifest.content == "sqlite":
        if not database.is_sqlite or database.url.database is None:
            raise ConflictError(
                "This backup is a file of SQLite. For PostgreSQL make one with 'backup --tables'."
            )
        shutil.copyfile(folder / SQLITE_FILE, database.url.database)
        return
    migrate(database, manifest.schema_revision)
    try:
        with database.write() as session:
            load_tables(session.connection(), folder, manifest, now_and_then(say, what="restored"))
    except RuleError as error:
        raise ContentError(f"{folder}: {error}") from error


def _restore_logs(
    parts: Parts, folder: Path, root: Path, manifest: Manifest, added: "Added", say: Progress
) -> None:
    if not manifest.logs.included:
        say("This backup has no logs: they are looked for where the settings say.")
        return
    pool, store = ArtifactStore(root / POOL), parts.artifacts
    sizes = size_in(store)

    def known(sha256: str) -> int | None:
        """What the store has already, unless it is damaged: then that is put aside."""
        size_bytes = sizes(sha256)
        if size_bytes is None or file_part(store.path_of(sha256)).sha256 == sha256:
            return size_bytes
        damaged = store.path_of(sha256)
        say(f"{damaged} was damaged; it is kept as {damaged.name}.damaged")
        damaged.rename(damaged.with_name(f"{damaged.name}.damaged"))
        return None

    copy_logs(
        (sha256 for sha256, _ in listed_logs(folder)),
        pool.open,
        store,
        known=known,
        on_kept=lambda sha256, _, is_new: added(sha256) if is_new else None,
        progress=now_and_then(say, what="logs"),
    )


@contextmanager
def _removed_on_failure(store: ArtifactStore) -> Iterator["Added"]:
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


@contextmanager
def _replaced_key(key: Path, copy: Path, say: Progress) -> Iterator[None]:
    """The backup's key in its place for good if the block ends well, else the one that was there.

    The key that was there is kept under another name: somebody may want to sign with it again.
    """
    key.parent.mkdir(parents=True, exist_ok=True)
    same = key.exists() and file_part(key) == file_part(copy)
    if same:
        yield
        return
    old = key.with_name(f"{key.name}.replaced-{utc_now():%Y%m%dT%H%M%SZ}")
    fresh = key.with_name(f".{key.name}.{secrets.token_hex(8)}")
    had_key = key.exists()
    try:
        fresh.touch(mode=0o600)
        shutil.copyfile(copy, fresh)
        sync(fresh)
        if had_key:
            os.link(key, old)
        fresh.replace(key)
        try:
            yield
        except BaseException:
            if had_key:
                old.replace(key)
            else:
                key.unlink()
            raise
    finally:
        fresh.unlink(missing_ok=True)
    say(f"The private signing key is in {key}, readable by its owner alone: keep it so.")

"""Restore a server from a backup: built beside the present one, then swapped in one step."""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.base.artifacts import ArtifactStore, sync
from server.base.database import Database, utc_now
from server.base.errors import ConflictError, ContentError
from server.base.revision import newest_revision
from server.base.schema import migrate
from server.base.services import Services
from server.operations.backup import KEY, POOL, SQLITE_FILE, find_backup
from server.operations.copies import LOG_COLUMNS, Copied, copy_logs, size_in
from server.operations.folders import Progress, now_and_then, only_one, silent
from server.operations.manifest import (
    BACKUP_FORMAT,
    LOG_LIST,
    Manifest,
    check_files,
    file_part,
    read_manifest,
)
from server.operations.restore_database import Place, load_tables, place_of
from server.operations.table_files import read_csv

LOGS = "logs"
MOST_PROBLEMS = 20


def listed_logs(folder: Path) -> Iterator[tuple[str, int]]:
    """Hash and bytes of every log that the list of a folder names. Raises RuleError."""
    for line in read_csv(folder / LOG_LIST, LOG_COLUMNS, name=LOG_LIST):
        sha256, size_bytes = line.values
        if not is_sha256(sha256) or size_bytes is None:
            raise RuleError(f"got {str(sha256)[:80]!r}", file=LOG_LIST, line=line.number,
                            expected="a SHA-256 in hex, and bytes")  # fmt: skip
        yield sha256, size_bytes


def is_sha256(text: object) -> bool:
    """Whether a text is 64 small hex digits."""
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def refuse(problems: Iterable[RuleError], folder: Path) -> None:
    """Raise ContentError with the first few problems, if there is any."""
    found = list(islice(problems, MOST_PROBLEMS))
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise ContentError(f"{folder} is not whole, and nothing was changed:{lines}")


def check_plain(folder: Path) -> Iterator[RuleError]:
    """Name each link, device or pipe in a backup: a restore reads plain files and folders only."""
    inside = () if folder.is_symlink() else folder.rglob("*")
    for path in sorted([*([folder] if os.path.lexists(folder) else []), *inside]):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield RuleError(
                "a link, a device or a pipe",
                file=str(path.relative_to(folder.parent)),
                expected="plain files and folders, as a backup has them",
            )


def check_log_files(
    folder: Path, manifest: Manifest, place: Path, say: Progress = silent
) -> Iterator[RuleError]:
    """Faults of the listed logs: one that is missing from a place, or changed."""
    count = size = 0
    try:
        for sha256, size_bytes in listed_logs(folder):
            count, size = count + 1, size + size_bytes
            problem = _check_log(place / sha256[:2] / sha256, sha256)
            if problem is not None:
                yield problem
            say(f"{count_text(count, 'log')}, {size / 1e6:.0f} MB")
    except RuleError as error:
        yield error
        return
    if (count, size) != (manifest.logs.files, manifest.logs.size_bytes):
        yield RuleError(
            _logs(count, size),
            file=LOG_LIST,
            expected=_logs(manifest.logs.files, manifest.logs.size_bytes),
        )


def _logs(count: int, size_bytes: int) -> str:
    return f"{count_text(count, 'log')}, {count_text(size_bytes, 'byte')}"


def _check_log(path: Path, sha256: str) -> RuleError | None:
    name = f"{LOGS}/{sha256[:2]}/{sha256}"
    try:
        if path.is_symlink():
            return RuleError("a link", file=name, expected="a plain file")
        found = file_part(path).sha256
    except OSError as error:
        return RuleError(f"not there ({error.strerror})", file=name, expected="a log")
    if found != sha256:
        return RuleError(
            f"its content has hash {found}", file=name, expected="the hash in its name"
        )
    return None


def restore(
    services: Services, root: Path, *, name: str | None = None, force: bool = False,
    say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Make the database, the key and the logs as a backup has them; the latest if none is named.

    Everything is checked first. The present state is kept under another name, and only with `force`
    replaced. Raises ConflictError, ContentError, NotFoundError or RuleError; then database and key
    are as they were, and so is a store in a folder.
    """
    folder = find_backup(root, name)
    refuse(chain(check_plain(folder), check_plain(root / POOL)), folder)
    with only_one(root, what="backup or restore"):
        manifest = _verified(folder, root, say)
        place = place_of(services.database)
        _require_free(services, place, folder, force=force)
        with _removed_on_failure(services.artifacts) as copied, place.beside() as database:
            _fill(database, folder, manifest, say)
            _restore_logs(services, folder, root, manifest, copied, say)
            with _replaced_key(services.settings.signing_key_path, folder / KEY, say):
                kept = place.swap(database)
        if kept is not None:
            say(f"The previous data is kept as {kept}; remove it when the restored server works.")
    return folder, manifest


def _verified(folder: Path, root: Path, say: Progress) -> Manifest:
    manifest = read_manifest(folder, wanted=BACKUP_FORMAT)
    if manifest.schema_revision != newest_revision():
        raise ConflictError(
            f"{folder} has tables of schema {manifest.schema_revision}, this Finishline needs "
            f"{newest_revision()}. Hint: restore it with the one that made it "
            f"({manifest.code.version}, commit {manifest.code.commit or 'unknown'})."
        )
    refuse(check_files(folder, manifest), folder)
    progress = now_and_then(say, what="checked")
    refuse(check_log_files(folder, manifest, root / POOL, progress), folder)
    return manifest


def _require_free(services: Services, place: Place, folder: Path, *, force: bool) -> None:
    """Raise ConflictError if something would be replaced and that is not wanted."""
    filled = place.filled()
    if filled is not None and not force:
        raise ConflictError(
            f"{filled}; a restore replaces it only with --force, and keeps the previous data."
        )
    key = services.settings.signing_key_path
    if key.exists() and file_part(key) != file_part(folder / KEY) and not force:
        raise ConflictError(
            f"{key} is another key than the backup's. With --force it is replaced, and kept."
        )
    place.require_unused()


def _fill(database: Database, folder: Path, manifest: Manifest, say: Progress) -> None:
    """Fill an empty database, not used yet, with the backup's."""
    if manifest.content == "sqlite":
        if not database.is_sqlite or database.url.database is None:
            raise ConflictError(
                "This backup is a file of SQLite. For PostgreSQL make one with 'backup --tables'."
            )
        shutil.copyfile(folder / SQLITE_FILE, database.url.database)
        return
    migrate(database)
    try:
        with database.write() as session:
            load_tables(session.connection(), folder, manifest, now_and_then(say, what="restored"))
    except RuleError as error:
        raise ContentError(f"{folder}: {error}") from error


def _restore_logs(
    services: Services, folder: Path, root: Path, manifest: Manifest, copied: Copied, say: Progress
) -> None:
    if not manifest.logs.included:
        say("This backup has no logs: they are read from the store in the settings.")
        return
    pool, store = ArtifactStore(root / POOL, reads_only=True), services.artifacts
    sizes = size_in(store)

    def known(sha256: str) -> int | None:
        """Bytes of a file that the store has already; one that is damaged is put aside."""
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
        copied=copied,
        progress=now_and_then(say, what="logs"),
    )


@contextmanager
def _removed_on_failure(store: ArtifactStore) -> Iterator[Copied]:
    """Remove the files that were added to a store's folder, if the block does not end well.

    A bucket keeps them, where nothing refers to them.
    """
    copied = Copied()
    try:
        yield copied
    except BaseException:
        for sha256 in copied.new:
            store.path_of(sha256).unlink(missing_ok=True)
        raise


@contextmanager
def _replaced_key(key: Path, copy: Path, say: Progress) -> Iterator[None]:
    """The backup's key in its place for good if the block ends well, else the one that was there.

    The key that was there is kept under another name: it may be wanted again.
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

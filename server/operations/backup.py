"""Backup of a server's whole state: the database, the signing key, the logs. And back again.

A folder of backups has one folder of logs by their hashes for all of them, and a dated folder each
for the rest: a second backup copies only the logs that are new.
"""

import csv
import os
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import cast

from sqlalchemy import NullPool, create_engine, inspect, select, text

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text, names_text
from server.base.artifacts import ArtifactStore, sync
from server.base.database import Database, utc_now
from server.base.errors import ConflictError, ContentError, NotFoundError
from server.base.models import User
from server.base.schema import VERSIONS, newest_revision
from server.base.services import Services
from server.operations.copies import (
    BACKUP_FORMAT,
    LOG_LIST,
    LOGS,
    Copied,
    Manifest,
    Moment,
    Progress,
    copy_logs,
    dated_copy,
    dated_folders,
    file_part,
    moment_of,
    only_one,
    read_manifest,
    sign_folder,
    silent,
    snapshot,
    whole_or_not,
)
from server.operations.selection import list_logs
from server.verifications.proofs import current_signer

KEY = "signing-key.pem"
FILES = {"sqlite": "finishline.db", "postgresql": "finishline.dump"}
LOCK_TIMEOUT = "10s"
SECRETS = (
    "This backup contains the private signing key and the hashes of all tokens: store it where "
    "only you can read it."
)
MOST_PROBLEMS = 20
SHA256 = re.compile("[0-9a-f]{64}")
# PostgreSQL lists a connection that was closed for a moment longer.
LOOKS, LOOK_SECONDS = 40, 0.05


@dataclass(frozen=True)
class Choice:
    """Content of a backup. Without `logs` they are kept safe in another way.

    `keep` is how many backups stay, None for all. The folder of logs only grows.
    """

    logs: bool = True
    keep_missing: bool = False
    keep: int | None = None


def back_up(
    services: Services, root: Path, choice: Choice, say: Progress = silent
) -> tuple[Path, Manifest]:
    """Add a backup to a folder of backups, while the server goes on.

    The database is of one moment, and every log that it names was there at that moment. Raises
    ConflictError while another backup runs, RuleError naming a log that is lost or changed.
    """
    if (root / LOGS).is_symlink():
        raise ContentError(f"{root / LOGS} is a link, expected a folder. Hint: remove the link.")
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    signer, database = current_signer(services), services.database
    with dated_copy(root, what="backup", keep=choice.keep) as path, whole_or_not(path) as folder:
        folder.chmod(0o700)
        content = _kind_of(database)
        moment = _dump(database, folder / FILES[content])
        copied: Copied | None = None
        if choice.logs:
            target = ArtifactStore(root / LOGS)
            target.sweep(older_than_seconds=0)
            copied = copy_logs(
                moment.logs, services.artifacts, target, keep_missing=choice.keep_missing
            )
            say(f"logs: {len(copied.sizes)}, of which {copied.new} are new in {root / LOGS}")
        _copy_private(services.settings.signing_key_path, folder / KEY)
        manifest = sign_folder(
            folder, services, signer, moment, copied,
            format=BACKUP_FORMAT, content=content, tables={}, left_out={},
        )  # fmt: skip
        for each in folder.iterdir():
            each.chmod(0o600)
    return path, manifest


def restore(
    services: Services, root: Path, *, name: str | None = None, force: bool = False,
    say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Make the database, the key and the logs as a backup has them; the latest if none is named.

    Everything is checked first. With `force` the present database and key are replaced, and kept
    under another name. The database changes in one step: a restore that is killed leaves it as it
    was. Raises ConflictError, ContentError, NotFoundError or RuleError.
    """
    folder = find_backup(root, name)
    database, key = services.database, services.settings.signing_key_path
    with only_one(root, what="backup or restore"):
        manifest, logs = _verified(folder, root)
        if manifest.content != _kind_of(database):
            raise ConflictError(
                f"{folder} is of {manifest.content}, expected {_kind_of(database)}. Hint: name an "
                f"address of {manifest.content} in FINISHLINE_DATABASE_URL."
            )
        filled = _tables_with_rows(database)
        if filled and not force:
            raise ConflictError(
                f"{database.name} has rows in {names_text(filled)}; a restore replaces it only "
                "with --force, and keeps the previous data."
            )
        is_other_key = key.exists() and file_part(key) != file_part(folder / KEY)
        if is_other_key and not force:
            raise ConflictError(
                f"{key} is another key than the backup's. With --force it is replaced, and kept."
            )
        _require_alone(database)
        if manifest.logs.included:
            _restore_logs(root / LOGS, logs, services.artifacts, say)
        else:
            say("This backup has no logs: they are read from the store in the settings.")
        key.parent.mkdir(parents=True, exist_ok=True)
        fresh = key.with_name(f".{key.name}.restored")
        _copy_private(folder / KEY, fresh)
        if database.is_sqlite:
            kept = _replace_sqlite(database, folder / FILES["sqlite"])
        else:
            kept = root / f"replaced-{utc_now():%Y%m%dT%H%M%SZ}.dump" if filled else None
            _replace_postgresql(database, folder / FILES["postgresql"], kept)
        # Whoever has signed out since the backup stays so.
        with database.write() as session:
            for user in session.scalars(select(User)):
                user.end_sessions()
        database.close()
        if is_other_key:
            os.link(key, key.with_name(f"{key.name}.replaced-{utc_now():%Y%m%dT%H%M%SZ}"))
        fresh.replace(key)
        if filled:
            say(f"The previous data is kept as {kept}; remove it when the restored server works.")
        say(f"The private signing key is in {key}, readable by its owner alone: keep it so.")
    return folder, manifest


def find_backup(root: Path, name: str | None) -> Path:
    """A backup by its name, the latest if none is named. Raises ContentError, NotFoundError."""
    if root.is_file():
        raise ContentError(
            f"{root} is a file, expected a folder of backups. A restore unpacks no archive. Hint: "
            "unpack one that you made yourself with tar, and name the folder."
        )
    found = {each.name: each for each in dated_folders(root)} if root.is_dir() else {}
    if not found:
        raise NotFoundError(
            f"No backup in {root}. Name a folder that `finishline admin backup` or "
            "`python -m server.admin backup` has written."
        )
    if name is not None and name not in found:
        raise NotFoundError(f"{root} has no backup {name!r}; it has {', '.join(sorted(found))}.")
    return found[name or max(found)]


def _verified(folder: Path, root: Path) -> tuple[Manifest, list[str]]:
    """The manifest of a backup and the hashes of its logs, when each file is as it was signed."""
    _refuse(chain(_check_plain(folder), _check_plain(root / LOGS)), folder)
    manifest = read_manifest(folder, wanted=BACKUP_FORMAT)
    if manifest.schema_revision != newest_revision():
        raise ConflictError(
            f"{folder} has tables of schema {manifest.schema_revision}, this Finishline needs "
            f"{newest_revision()}. Hint: restore it with the one that made it "
            f"({manifest.code.version}, commit {manifest.code.commit or 'unknown'})."
        )
    expected = sorted([FILES.get(manifest.content, ""), KEY, LOG_LIST])
    if sorted(manifest.files) != expected:
        found = names_text([each[:100] for each in manifest.files])
        raise RuleError(
            f"got {found}", file="manifest.json", field="files", expected=names_text(expected)
        )
    signed = {name: part.sha256 for name, part in manifest.files.items()}
    _refuse(_check_hashes(folder, signed), folder)
    with (folder / LOG_LIST).open(newline="") as file:
        logs = [row["sha256"] for row in csv.DictReader(file)]
    if not all(SHA256.fullmatch(each) for each in logs):
        raise RuleError("a name that is not a hash", file=LOG_LIST, expected="SHA-256 in hex")
    places = {f"{LOGS}/{each[:2]}/{each}": each for each in logs}
    _refuse(_check_hashes(root, places), folder)
    return manifest, logs


def _refuse(problems: Iterable[RuleError], folder: Path) -> None:
    found = list(islice(problems, MOST_PROBLEMS))
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise ContentError(f"{folder} is not whole, and nothing was changed:{lines}")


def _check_plain(folder: Path) -> Iterator[RuleError]:
    """Name each link, device or pipe: a restore reads plain files and folders only."""
    inside = () if folder.is_symlink() else folder.rglob("*")
    for path in sorted([*([folder] if os.path.lexists(folder) else []), *inside]):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield RuleError(
                "a link, a device or a pipe",
                file=str(path.relative_to(folder.parent)),
                expected="plain files and folders, as a backup has them",
            )


def _check_hashes(folder: Path, expected: dict[str, str]) -> Iterator[RuleError]:
    for name, sha256 in expected.items():
        try:
            found = file_part(folder / name).sha256
        except OSError as error:
            yield RuleError(f"not there ({error.strerror})", file=name, expected=f"hash {sha256}")
            continue
        if found != sha256:
            yield RuleError(f"changed: it has hash {found}", file=name, expected=f"hash {sha256}")


def _restore_logs(folder: Path, logs: list[str], store: ArtifactStore, say: Progress) -> None:
    """Copy the logs that a store lacks. A damaged one is put aside first."""
    for sha256 in logs if store.bucket is None else ():
        path = store.path_of(sha256)
        if path.exists() and file_part(path).sha256 != sha256:
            say(f"{path} was damaged; it is kept as {path.name}.damaged")
            path.rename(path.with_name(f"{path.name}.damaged"))
    copied = copy_logs(logs, ArtifactStore(folder, reads_only=True), store)
    say(f"logs: {count_text(len(copied.sizes), 'file')}, of which {copied.new} were missing")


def _kind_of(database: Database) -> str:
    return "sqlite" if database.is_sqlite else "postgresql"


def _copy_private(source: Path, target: Path) -> None:
    """Copy a file, readable by its owner alone from the start."""
    target.touch(mode=0o600)
    shutil.copyfile(source, target)
    sync(target)


def _tables_with_rows(database: Database) -> list[str]:
    if database.is_missing():
        return []
    with database.engine.connect() as connection:
        return [
            name
            for name in sorted(set(inspect(connection).get_table_names()) - {VERSIONS})
            if connection.execute(text(f'SELECT 1 FROM "{name}" LIMIT 1')).first()  # noqa: S608
        ]


def _require_alone(database: Database) -> None:
    """Raise ConflictError while somebody else uses the database. A SQLite file leaves WAL mode."""
    database.close()
    used = f"{database.name} is in use: stop every server process first"
    if database.is_sqlite:
        if database.is_missing():
            return
        try:
            with closing(sqlite3.connect(str(database.url.database), timeout=1.0)) as connection:
                connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError as error:
            raise ConflictError(f"{used} ({error}).") from error
        return
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    others = 0
    with database.engine.connect() as connection:
        for _ in range(LOOKS):
            others = int(connection.scalar(text(query)) or 0)
            connection.rollback()
            if not others:
                return
            time.sleep(LOOK_SECONDS)
    raise ConflictError(f"{used} ({others} other connections).")


def _dump(database: Database, path: Path) -> Moment:
    """Write the database as it is at one moment."""
    path.touch(mode=0o600)
    if database.is_sqlite:
        return _dump_sqlite(database, path)
    with snapshot(database) as connection:
        moment = connection.scalar(text("SELECT pg_export_snapshot()"))
        _run_client(
            "pg_dump", database, "--format=custom", "--no-owner", "--no-privileges",
            f"--snapshot={moment}", f"--file={path}",
        )  # fmt: skip
        return moment_of(connection, list_logs(connection))


def _dump_sqlite(database: Database, path: Path) -> Moment:
    raw = database.engine.raw_connection()
    try:
        with closing(sqlite3.connect(path)) as target:
            cast(sqlite3.Connection, raw.driver_connection).backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
            target.execute("PRAGMA secure_delete=ON")
            (found,) = target.execute("PRAGMA integrity_check").fetchone()
    finally:
        raw.close()
    if found != "ok":
        raise RuntimeError(f"The copy of the database is damaged: {found}")
    with create_engine(f"sqlite:///{path}", poolclass=NullPool).connect() as connection:
        return moment_of(connection, list_logs(connection))


def _replace_sqlite(database: Database, copy: Path) -> Path | None:
    """Rename a copy onto the file. The present file gets a second name first."""
    path, old = Path(str(database.url.database)), None
    fresh = path.with_name(f".{path.name}.restored")
    try:
        _copy_private(copy, fresh)
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
            _require_alone(database)
            old = path.with_name(f"{path.name}.replaced-{utc_now():%Y%m%dT%H%M%SZ}")
            os.link(path, old)
        fresh.replace(path)
        sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
    return old


def _replace_postgresql(database: Database, dump: Path, kept: Path | None) -> None:
    """Restore a dump in one transaction. The present tables are dumped to `kept` first."""
    if kept is not None:
        _dump(database, kept)
    database.close()
    _run_client(
        "pg_restore", database, "--clean", "--if-exists", "--no-owner", "--no-privileges",
        "--single-transaction", str(dump),
    )  # fmt: skip


def _run_client(program: str, database: Database, *arguments: str) -> None:
    """Run a program of PostgreSQL's client. Raises RuntimeError with its last words."""
    url = database.url.set(drivername="postgresql", password=None)
    environment = os.environ | {"PGOPTIONS": f"-c lock_timeout={LOCK_TIMEOUT}"}
    if database.url.password is not None:
        environment["PGPASSWORD"] = str(database.url.password)
    address = url.render_as_string(hide_password=False)
    try:
        done = subprocess.run(
            [program, "--no-password", f"--dbname={address}", *arguments],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise RuntimeError(
            f"{program} is not installed, expected the client programs of PostgreSQL. Hint: "
            "install postgresql-client, in the version of the database or newer."
        ) from error
    if done.returncode:
        raise RuntimeError(f"{program} failed: {' '.join(done.stderr.split())[-1000:]}")

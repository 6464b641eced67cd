"""Back up and restore a server's whole state: the database, the signing key, the logs."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from sqlalchemy import Connection, NullPool, create_engine, inspect, select, text

from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import read_part, signed_bytes
from finishline.rules.text import names_text
from server.base.artifacts import ArtifactStore, sync
from server.base.database import Database, Services
from server.base.errors import ConflictError, ContentError, NotFoundError
from server.base.models import User
from server.base.schema import VERSIONS, newest_revision
from server.base.signing import load_signer
from server.base.visibility import ORGANISER
from server.operations.copies import (
    MANIFEST,
    Content,
    Manifest,
    Progress,
    add_copy,
    dated_copies,
    files_in,
    moment_of,
    only_one,
    place_of,
    sha256_of,
    silent,
)
from server.operations.export import list_logs

BACKUP_FORMAT = "finishline-backup-3"
KEY = "signing-key.pem"
FILES = {"sqlite": "finishline.db", "postgresql": "finishline.dump"}
LOCK_TIMEOUT = "10s"
MOST_PROBLEMS = 20
LOGS_AT_ONCE = 64
NEW_PLACE = (
    "Hint: stop the server, and move its folder away or name an empty one, or an empty database."
)


def _fill(services: Services, folder: Path, _say: Progress) -> Content:
    """Dump the database of one moment. Every log that it names was there at that moment."""
    kind = services.database.url.get_backend_name()
    content = _dump(services.database, folder / FILES[kind])
    _copy_private(services.settings.signing_key_path, folder / KEY)
    return content


back_up = partial(add_copy, "backup", _fill)


def restore(
    services: Services, root: Path, *, name: str | None = None, say: Progress = silent
) -> tuple[Path, Manifest]:
    """Restore the database, the key and the logs from a backup, by default the latest.

    Everything is checked first, and nothing is replaced. The database comes last, in one step, so a
    killed restore leaves it as it was. Raises ConflictError, ContentError, NotFoundError or
    RuleError.
    """
    folder = find_backup(root, name)
    database, key = services.database, services.settings.signing_key_path
    with only_one(folder.parent):
        manifest, logs = _checked(folder, database)
        if filled := _tables_with_rows(database):
            raise ConflictError(
                f"{database.name} has rows in {names_text(filled)}, and a restore replaces "
                f"nothing. {NEW_PLACE}"
            )
        if key.exists() and sha256_of(key) != sha256_of(folder / KEY):
            raise ConflictError(f"{key} is another key than the backup's. {NEW_PLACE}")
        if not key.exists():
            signer = load_signer(folder / KEY)
            say(f"Signed by key {signer.key_id}: is it the one that you noted of your server?")
        _restore_logs(folder, logs, services.artifacts)
        say(f"logs: {len(logs)}")
        key.parent.mkdir(parents=True, exist_ok=True)
        _put(folder / KEY, key)
        if database.is_sqlite:
            database.close()
            path = Path(str(database.url.database))
            if path.with_name(f"{path.name}-wal").exists():
                raise ConflictError(f"{database.name} is in use. {NEW_PLACE}")
            _put(folder / FILES["sqlite"], path, end_sessions)
        else:
            _run_client(
                "pg_restore", database, "--clean", "--if-exists", "--no-owner", "--no-privileges",
                "--single-transaction", str(folder / FILES["postgresql"]),
            )  # fmt: skip
            end_sessions(database)
    return folder, manifest


def end_sessions(database: Database) -> None:
    """Sign every browser out, because some have signed out since the backup."""
    with database.write() as session:
        for user in session.scalars(select(User)):
            user.end_sessions()


def _put(source: Path, target: Path, prepare: Callable[[Database], None] | None = None) -> None:
    """Copy a file into its place in one step, as a database `prepare`d before."""
    with TemporaryDirectory(prefix=".restored-", dir=target.parent) as folder:
        fresh = Path(folder) / target.name
        _copy_private(source, fresh)
        if prepare is not None:
            copied = Database(f"sqlite:///{fresh}")
            prepare(copied)
            copied.close()
        fresh.replace(target)
    sync(target.parent)


def find_backup(root: Path, name: str | None) -> Path:
    """Find a folder's backup by name, or the latest. Raises ContentError or NotFoundError."""
    if root.is_file():
        raise ContentError(
            f"{root} is a file, expected a folder of backups. A restore unpacks no archive. Hint: "
            "unpack one that you made yourself with tar, and name the folder."
        )
    if name is None and (root / MANIFEST).is_file():
        return root
    found = {each.name: each for each in dated_copies(root, "backup")} if root.is_dir() else {}
    if not found:
        raise NotFoundError(
            f"No backup in {root}. Name a folder that `finishline admin backup` has written."
        )
    if name is not None and name not in found:
        raise NotFoundError(f"{root} has no backup {name!r}; it has {', '.join(sorted(found))}.")
    return found[name or max(found)]


def _checked(folder: Path, database: Database) -> tuple[Manifest, list[str]]:
    """Return a backup's manifest and its logs, if every file is there, plain and unchanged."""
    document = read_json((folder / MANIFEST).read_bytes(), file=MANIFEST)
    if document.get("format") != BACKUP_FORMAT:
        raise RuleError("another format", file=MANIFEST, field="format", expected=BACKUP_FORMAT)
    signature = document.pop("signature", None)
    manifest = read_part(Manifest, document)
    kind = database.url.get_backend_name()
    if manifest.content != kind:
        raise ConflictError(
            f"{folder} is of {manifest.content}, expected {kind}. Hint: name an "
            f"address of {manifest.content} in FINISHLINE_DATABASE_URL."
        )
    if manifest.schema_revision != newest_revision():
        raise ConflictError(
            f"{folder} has tables of schema {manifest.schema_revision}, this Finishline needs "
            f"{newest_revision()}. Hint: restore it with the one that made it "
            f"({manifest.code.version}, commit {manifest.code.commit or 'unknown'})."
        )
    problems = list(islice(_problems(folder, manifest), MOST_PROBLEMS))
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise ContentError(f"{folder} is not whole, and nothing was changed:{lines}")
    signer = load_signer(folder / KEY)
    value = signature.get("value") if isinstance(signature, dict) else None
    if value != signer.sign(signed_bytes(document)).hex():
        raise RuleError(
            "it was changed, or another key signed it",
            file=MANIFEST, field="signature", expected=f"that of key {signer.key_id}",
        )  # fmt: skip
    own = {FILES[manifest.content], KEY}
    return manifest, [sha256 for name, sha256 in manifest.files.items() if name not in own]


def _problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    own, listed = {FILES[manifest.content], KEY}, manifest.files
    if folder.is_symlink():
        yield f"{folder.name}: a link"
    for name in sorted({*own, *listed, *files_in(folder)} - {MANIFEST}):
        path = folder / name
        if name not in listed or (name not in own and name != place_of(listed[name])):
            yield f"{name[:100]}: not a file of a backup"
        elif path.is_symlink() or (path.exists() and not path.is_file()):
            yield f"{name}: a link, a device or a pipe, expected a plain file"
        elif not path.exists():
            yield f"{name}: not there"
        elif (found := sha256_of(path)) != listed[name]:
            yield f"{name}: changed, it has hash {found}"


def _restore_logs(folder: Path, logs: list[str], store: ArtifactStore) -> None:
    for start in range(0, len(logs), LOGS_AT_ONCE):
        staged = []
        try:
            for sha256 in logs[start : start + LOGS_AT_ONCE]:
                with (folder / place_of(sha256)).open("rb") as file:
                    staged.append(store.stage(file))
            store.settle(staged)
            store.keep(staged)
        finally:
            for each in staged:
                store.discard(each)


def _copy_private(source: Path, target: Path) -> None:
    """Copy a file that only its owner can read, from the start."""
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


def _dump(database: Database, path: Path) -> Content:
    path.touch(mode=0o600)
    if not database.is_sqlite:
        with database.read_snapshot(ORGANISER) as session:
            connection = session.connection()
            moment = connection.scalar(text("SELECT pg_export_snapshot()"))
            _run_client(
                "pg_dump", database, "--format=custom", "--no-owner", "--no-privileges",
                f"--snapshot={moment}", f"--file={path}",
            )  # fmt: skip
            return _content("postgresql", connection)
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
        return _content("sqlite", connection)


def _content(kind: str, connection: Connection) -> Content:
    own = {"format": BACKUP_FORMAT, "content": kind, "tables": {}, "left_out": {}}
    return own | moment_of(connection), list_logs(connection)


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

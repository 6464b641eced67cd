"""Steps of `up` and the administration at a server's own database: tables, tokens, workers."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from finishline.cli.errors import CliError, ExitCode
from finishline.rules.errors import RuleError
from server.base.artifacts import make_store
from server.base.broker import Broker
from server.base.database import Database, OfferedBenchmarks, Services, utc_now
from server.base.errors import ConflictError, NotSignedInError, ServerError
from server.base.models import WorkerRow
from server.base.schema import require_current_schema
from server.base.settings import Settings, read_settings
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import those_in_force
from server.commands.check import check_server
from server.commands.paths import VarPaths
from server.operations.backup import back_up, restore
from server.operations.copies import Manifest
from server.operations.export import export
from server.people.accounts import TOKEN_PREFIX, NewToken, create_token, find_token
from server.people.audit import Administrator
from server.people.tokens import record_new_token
from server.reactions import connect_rooms
from server.submissions.rescoring import rescore_submissions
from server.verifications.workers import confirm_worker

__all__ = ["back_up", "check_server", "export", "rescore_submissions", "restore"]

FAULTS = (RuntimeError, ServerError, RuleError, OSError, DBAPIError, sqlite3.Error)


@contextmanager
def told(what: str, *, exit_code: ExitCode = ExitCode.REFUSED) -> Iterator[None]:
    """Turn a fault of the server's own code into the command's error: "No token was made: ..."."""
    before = os.umask(0o077)  # Its files are for its user alone.
    try:
        yield
    except FAULTS as error:
        words = error.orig if isinstance(error, DBAPIError) else error
        raise CliError(f"{what}: {' '.join(str(words).split())}", exit_code=exit_code) from error
    finally:
        os.umask(before)


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A server's database, without a server."""
    connect_rooms()
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def stopped(var: Path | None) -> Iterator[Services]:
    """The services of a command, for a server of `finishline up` or that of the settings."""
    settings = read_settings(**({} if var is None else VarPaths(var.absolute()).settings()))
    with opened(settings.database_url) as database:
        yield Services(settings, database, make_store(settings), OfferedBenchmarks())


@contextmanager
def serving(var: Path | None) -> Iterator[Services]:
    """The same with the definitions in force, while the server may run. Raises RuntimeError."""
    with stopped(var) as services:
        require_current_schema(services.database)
        key = services.settings.signing_key_path
        if not key.exists():
            raise RuntimeError(
                f"There is no {key}, which a server makes at its start: are "
                "FINISHLINE_ARTIFACTS_DIR and FINISHLINE_SIGNING_KEY the server's?"
            )
        with services.database.read(ORGANISER) as session:
            services.benchmarks.replace(those_in_force(session))
        yield services


def backups_of(settings: Settings) -> Path:
    """The folder of backups that is named for a server, else a folder next to its logs."""
    return settings.backups_dir or settings.artifacts_dir.parent / "backups"


def summary(path: Path, manifest: Manifest) -> dict[str, Any]:
    """An export or a backup in short."""
    return {
        "path": str(path),
        "content": manifest.content,
        "made_at": manifest.made_at,
        "schema_revision": manifest.schema_revision,
        "rows": sum(manifest.tables.values()),
        "logs": manifest.logs,
        "missing_logs": len(manifest.missing_logs),
        "audit_head": asdict(manifest.audit_head),
    }


def make_token(
    database: Database,
    user: str,
    role: str,
    *,
    known: bool = False,
    expires_in: timedelta | None = None,
) -> NewToken:
    """Make a token in a transaction of its own. Packages of a `known` user go to every worker."""
    with database.write() as session:
        made = create_token(session, user_name=user, role=role, expires_in=expires_in)
        record_new_token(session, Administrator(), made.token)
        if known:
            made.token.user.known_at = utc_now()
    return made


def keep_token(
    database: Database, path: Path, user: str, role: str, **more: Any
) -> NewToken | None:
    """Make a token and write it to a file, unless that has one which the database takes.

    A file may outlive the database that its token was of. Raises ConflictError for another file.
    """
    secret = path.read_text(errors="replace").strip() if path.exists() else ""
    if secret and not secret.startswith(TOKEN_PREFIX):
        raise ConflictError(f"{path} is not a token file; pass another file, or remove this one.")
    with suppress(NotSignedInError):
        if secret and find_token(database, secret).role == role:
            return None
    made = make_token(database, user, role, **more)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(made.secret + "\n")
    fresh.replace(path)
    return made


def make_accounts(broker_url: str, names: Sequence[str]) -> list[str]:
    """Addresses of the broker, each with an account of a worker's own."""
    broker = Broker(broker_url)
    try:
        return [broker.make_account(name) for name in names]
    finally:
        broker.close()


def was_heard(database: Database, name: str, since: float) -> bool:
    """Whether the server has heard from a worker at or after `since`, in Unix time."""
    with database.read() as session:
        worker = session.get(WorkerRow, name)
        return worker is not None and worker.last_seen_at.timestamp() >= since


def confirm(database: Database, name: str, owner: str, *, again: bool = True) -> None:
    """Confirm a worker of the server's own machine: it counts as the organisers'."""
    with database.write() as session:
        if again or session.get_one(WorkerRow, name).confirmed_at is None:
            confirm_worker(session, Administrator(), name, reason=None, owner=owner)

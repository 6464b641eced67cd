"""What `up` and the administration do at a server's own database: tables, tokens, workers."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from finishline.cli.errors import CliError, ExitCode
from finishline.rules.errors import RuleError
from server.base.artifacts import make_store
from server.base.broker import Broker
from server.base.database import Database, utc_now
from server.base.errors import ServerError
from server.base.schema import require_current_schema
from server.base.services import OfferedBenchmarks, Services
from server.base.settings import Settings, read_settings
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import those_in_force
from server.commands.paths import VarPaths
from server.operations import backup
from server.operations.backup import SECRETS, Choice
from server.operations.copies import Manifest, Progress
from server.operations.export import Wanted, export_everything, export_nightly
from server.operations.integrity import require_its_logs
from server.people.accounts import NewToken, create_token
from server.people.audit import Administrator
from server.people.tokens import record_new_token
from server.reactions import connect_rooms
from server.submissions.rescoring import rescore_submissions
from server.verifications.workers import confirm_worker

Summary = dict[str, Any]
FAULTS = (RuntimeError, ServerError, RuleError, OSError, DBAPIError, sqlite3.Error)


@contextmanager
def told(what: str, *, exit_code: ExitCode = ExitCode.REFUSED) -> Iterator[None]:
    """Turn a fault of the server's own code into the command's error: "No token was made: ..."."""
    before = os.umask(0o077)  # What a command writes is for its user alone.
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


def _services_of(database: Database, settings: Settings) -> Services:
    """The services of a command, without any definition."""
    return Services(
        settings=settings,
        database=database,
        artifacts=make_store(settings),
        benchmarks=OfferedBenchmarks(),
    )


@contextmanager
def serving(settings: Settings) -> Iterator[Services]:
    """Services of a server with the definitions in force."""
    with opened(settings.database_url) as database:
        require_current_schema(database)
        services = _services_of(database, settings)
        with database.read(ORGANISER) as session:
            services.benchmarks.replace(those_in_force(session))
        yield services


def _summary(path: Path, manifest: Manifest, **more: object) -> Summary:
    """An export or a backup in short."""
    return {
        "path": str(path),
        "content": manifest.content,
        "schema_revision": manifest.schema_revision,
        "logs": manifest.logs.files,
        "log_bytes": manifest.logs.size_bytes,
        "missing_logs": len(manifest.logs.missing),
    } | more


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


def make_accounts(broker_url: str, names: Sequence[str]) -> list[str]:
    """Addresses of the broker, each with an account of a worker's own."""
    broker = Broker(broker_url)
    try:
        return [broker.make_account(name) for name in names]
    finally:
        broker.close()


def confirm(database: Database, name: str, owner: str) -> None:
    """Confirm a worker of the server's own machine: it counts as the organisers'."""
    with database.write() as session:
        confirm_worker(session, Administrator(), name, reason=None, owner=owner)


def settings_of(paths: VarPaths) -> Settings:
    """The settings of a server of `finishline up`."""
    return read_settings(
        database_url=paths.database_url,
        artifacts_dir=paths.artifacts,
        signing_key=paths.signing_key,
    )


def back_up(settings: Settings, folder: Path, choice: Choice, say: Progress) -> Summary:
    """Add a backup of everything to a folder of backups."""
    with serving(settings) as services:
        if choice.logs and not choice.keep_missing:
            require_its_logs(services)
        made, manifest = backup.back_up(services, folder, choice, say)
    say(SECRETS)
    return _summary(made, manifest, made_at=manifest.made_at)


def restore(
    settings: Settings, folder: Path, say: Progress, *, name: str | None, force: bool
) -> Summary:
    """Restore the latest backup, or a named one."""
    with opened(settings.database_url) as database:
        services = _services_of(database, settings)
        made, manifest = backup.restore(services, folder, name=name, force=force, say=say)
    return _summary(made, manifest, made_at=manifest.made_at)


def export(
    settings: Settings, path: Path, wanted: Wanted, say: Progress, *, nightly: int | None = None
) -> Summary:
    """Write everything but secrets to a folder: `path`, or one of the last `nightly` below it."""
    with serving(settings) as services:
        if not wanted.keep_missing:
            require_its_logs(services)
        made = path
        if nightly is None:
            manifest = export_everything(services, path, wanted, say)
        else:
            made, manifest = export_nightly(
                services, path, keep=nightly, public=wanted.public,
                keep_missing=wanted.keep_missing, say=say,
            )  # fmt: skip
    rows, head = sum(manifest.tables.values()), asdict(manifest.audit_head)
    return _summary(made, manifest, rows=rows, audit_head=head)


def rescore(
    settings: Settings, benchmark: str | None, say: Progress, *, current: bool, dry_run: bool
) -> Summary:
    """Score every result again from its raw logs, and store the changes."""
    with serving(settings) as services:
        return asdict(
            rescore_submissions(
                services, benchmark_id=benchmark, current=current, dry_run=dry_run, progress=say
            )
        )

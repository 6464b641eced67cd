"""Commands of an administrator on the server's own machine: `python -m server.admin COMMAND`.

Each prints JSON on stdout, and its progress on stderr.
"""

import gc
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from typer import Argument, Option

from finishline.api.people import Role
from finishline.rules.errors import RuleError
from server.base.artifacts import make_store
from server.base.broker import Broker
from server.base.database import Database, utc_now
from server.base.errors import ConflictError, ServerError
from server.base.revision import newest_revision, require_current_schema
from server.base.schema import migrate as make_tables
from server.base.services import Services
from server.base.settings import get_settings
from server.base.viewer import ORGANISER
from server.benchmarks.queries import install_archives, load_definitions, offer_added
from server.operations import backup as backups
from server.operations.copies import Manifest
from server.operations.export import Wanted, export_everything, export_nightly
from server.operations.integrity import check_server, require_its_logs
from server.people.accounts import (
    ROLES,
    TOKEN_PREFIX,
    create_token,
    find_signed_in,
    hash_token,
    record_new_token,
)
from server.people.audit import Administrator
from server.reactions import connect_rooms
from server.submissions.rescoring import rescore_submissions
from server.verifications.workers import confirm_worker as confirm

Known = Annotated[
    bool, Option("--known", help="Its user's packages go to workers without a memory cgroup too.")
]
KeepMissing = Annotated[
    bool, Option("--keep-missing", help="List logs that the store has lost, and go on.")
]
SECRETS = (
    "This backup contains the private signing key and the hashes of all tokens: store it where "
    "only you can read it."
)
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


def main() -> None:
    """Run one command. Exits with 1 and a sentence if it fails. Its files are private."""
    os.umask(0o077)
    gc.set_threshold(50_000, 20, 10)  # A restore or an export takes longer than a start.
    connect_rooms()
    try:
        app(prog_name="python -m server.admin")
    except DBAPIError as error:
        told = " ".join(str(error.orig).split())
        _fail(f"The database {_database_name()} does not do it: {told}")
    except sqlite3.Error as error:
        _fail(f"The database {_database_name()} could not be copied: {error}")
    except (RuntimeError, ServerError, RuleError, OSError) as error:
        _fail(str(error))


def _fail(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(1)


@app.command()
def migrate() -> None:
    """Make the tables of an empty database."""
    with _database() as database:
        make_tables(database)
    print(json.dumps({"revision": newest_revision()}))


@app.command()
def token(
    user: Annotated[str, Option()],
    role: Annotated[Role, Option()],
    known: Known = False,
    days: Annotated[float | None, Option(help="Days until it expires (default: never).")] = None,
    out: Annotated[
        Path | None,
        Option(help="File for the token. One that is there stays if the database takes its token."),
    ] = None,
) -> None:
    """Make an API token and print it, once."""
    expires_in = timedelta(days=days) if days is not None else None
    with _current_database() as database:
        if out is not None and _holds_good_token(database, out, role=role):
            return
        made = _make_token(database, user, role, known=known, expires_in=expires_in)
    if out is not None:
        fresh = out.with_name(out.name + ".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(str(made.pop("token")) + "\n")
        fresh.replace(out)
    print(json.dumps(made))


@app.command()
def tokens(
    wanted: Annotated[list[str], Argument(metavar="USER=ROLE...")], known: Known = False
) -> None:
    """Make API tokens that do not expire: a JSON line for each."""
    pairs = [each.rpartition("=")[::2] for each in wanted]
    for user, role in pairs:
        if not user or role not in ROLES:
            raise typer.BadParameter(f"{user}={role}, expected USER=ROLE, of {', '.join(ROLES)}")
    with _current_database() as database:
        for user, role in pairs:
            is_known = known and role == "submitter"
            print(json.dumps(_make_token(database, user, role, known=is_known)))


@app.command()
def confirm_worker(name: str, user: Annotated[str, Option(help="Owner of the worker.")]) -> None:
    """Confirm a worker of the server's own: it counts as the organisers'."""
    with _current_database() as database, database.write() as session:
        confirm(session, Administrator(), name, reason=None, owner=user)


@app.command()
def worker_account(names: Annotated[list[str], Argument(metavar="NAME...")]) -> None:
    """Make a worker's own account at the broker, and print its FINISHLINE_BROKER_URL, once."""
    broker = Broker(get_settings().broker_url)
    try:
        for name in names:
            print(broker.make_account(name))
    finally:
        broker.close()


@app.command()
def rescore(
    benchmark: Annotated[str | None, Option(help="Only submissions of this benchmark.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List the changes only.")] = False,
    definition: Annotated[
        Literal["stored", "current"],
        Option(help="The definition that each result names, or today's."),
    ] = "stored",
) -> None:
    """Score every result again from its raw logs, and store the changes."""
    with _services() as services:
        summary = rescore_submissions(
            services, benchmark_id=benchmark, current=definition == "current", dry_run=dry_run,
            progress=say,
        )  # fmt: skip
    print(json.dumps(asdict(summary)))
    if summary.failed:
        raise typer.Exit(1)


@app.command()
def export(
    path: Annotated[Path | None, Argument(help="Folder to make, or NAME.tar.")] = None,
    nightly: Annotated[
        Path | None, Option(metavar="DIR", help="Make a dated folder in DIR, and remove old ones.")
    ] = None,
    keep: Annotated[int, Option(min=1, help="With --nightly: number to keep.")] = 14,
    public: Annotated[bool, Option("--public", help="Public data only.")] = False,
    keep_missing: KeepMissing = False,
) -> None:
    """Write everything but secrets to a folder, for others to study."""
    if (path is None) == (nightly is None):
        raise typer.BadParameter("name one place: PATH, or --nightly DIR")
    with _services() as services:
        if not keep_missing:
            require_its_logs(services)
        if path is not None:
            made = path
            manifest = export_everything(services, path, Wanted(public, keep_missing), say)
        else:
            made, manifest = export_nightly(
                services, nightly or Path(), keep=keep, public=public, keep_missing=keep_missing,
                say=say,
            )  # fmt: skip
    rows = sum(manifest.tables.values())
    print_summary(made, manifest, rows=rows, audit_head=asdict(manifest.audit_head))


@app.command()
def backup(
    path: Annotated[Path, Argument(help="Folder of backups, made if missing.")],
    keep: Annotated[int | None, Option(min=1, help="Backups to keep (default: all).")] = None,
    without_logs: Annotated[
        bool, Option("--without-logs", help="The raw logs are kept safe in another way.")
    ] = False,
    keep_missing: KeepMissing = False,
) -> None:
    """Add a backup of everything, secrets and all, to a folder of backups."""
    choice = backups.Choice(logs=not without_logs, keep_missing=keep_missing, keep=keep)
    with _services() as services:
        if not keep_missing and not without_logs:
            require_its_logs(services)
        made, manifest = backups.back_up(services, path, choice, say)
    say(SECRETS)
    print_summary(made, manifest, made_at=manifest.made_at)


@app.command()
def restore(
    path: Annotated[Path, Argument(help="Folder of backups.")],
    at: Annotated[
        str | None, Option(metavar="NAME", help="Which backup (default: the latest).")
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Replace data, which is kept under another name.")
    ] = False,
) -> None:
    """Restore a server from a backup. It makes the database, or replaces it."""
    with _database() as database:
        made, manifest = backups.restore(
            _services_of(database), path, name=at, force=force, say=say
        )
    print_summary(made, manifest, made_at=manifest.made_at)


@app.command()
def check(
    no_proofs: Annotated[bool, Option("--no-proofs", help="Skip the proofs.")] = False,
    no_files: Annotated[bool, Option("--no-files", help="Skip the store.")] = False,
) -> None:
    """Check the store, the audit log and every proof against the database. 1 with a fault."""
    started = time.monotonic()
    with _services() as services:
        if not no_files:
            require_its_logs(services)
        findings = check_server(services, files=not no_files, proofs=not no_proofs, say=say)
    for line in findings.faults:
        say(f"fault: {line}")
    for line in findings.orphans:
        say(f"orphan: {line}")
    summary = {
        "looked_at": findings.looked_at,
        "faults": len(findings.faults),
        "orphans": len(findings.orphans),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    if findings.faults:
        raise typer.Exit(1)


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def print_summary(path: Path, manifest: Manifest, **more: object) -> None:
    """Print one JSON line about an export or a backup."""
    summary = {
        "path": str(path),
        "content": manifest.content,
        "schema_revision": manifest.schema_revision,
        "logs": manifest.logs.files,
        "log_bytes": manifest.logs.size_bytes,
        "missing_logs": len(manifest.logs.missing),
    }
    print(json.dumps(summary | more))


def _database_name() -> str:
    return make_url(get_settings().database_url).render_as_string(hide_password=True)


@contextmanager
def _database() -> Iterator[Database]:
    database = Database(get_settings().database_url)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _current_database() -> Iterator[Database]:
    with _database() as database:
        require_current_schema(database)
        yield database


def _services_of(database: Database) -> Services:
    settings = get_settings()
    return Services(
        settings=settings,
        database=database,
        artifacts=make_store(settings),
        benchmarks=load_definitions(settings.benchmarks_dir, database),
    )


@contextmanager
def _services() -> Iterator[Services]:
    """Services of a server with the definitions of its archives and its added benchmarks."""
    with _current_database() as database:
        services = _services_of(database)
        with database.read(ORGANISER) as session:
            install_archives(services.benchmarks, session)
            offer_added(services.benchmarks, session)
        yield services


def _holds_good_token(database: Database, path: Path, *, role: str) -> bool:
    """Whether a file has a token that this database takes for the role.

    A file may outlive the database that its token was of. Raises ConflictError for another file.
    """
    secret = path.read_text().strip() if path.exists() else ""
    if not secret:
        return False
    if not secret.startswith(TOKEN_PREFIX):
        raise ConflictError(f"{path} is not a token file; pass another file, or remove this one.")
    with database.read_columns() as connection:
        found = find_signed_in(connection, hash_token(secret))
        return found is not None and found.role == role


def _make_token(
    database: Database,
    user: str,
    role: str,
    *,
    known: bool,
    expires_in: timedelta | None = None,
) -> dict[str, object]:
    with database.write() as session:
        made = create_token(session, user_name=user, role=role, expires_in=expires_in)
        record_new_token(session, Administrator(), made.token)
        if known:
            made.token.user.known_at = utc_now()
        expires_at = made.token.expires_at
        return {
            "id": made.token.id,
            "user": user,
            "role": role,
            "token": made.secret,
            "expires_at": expires_at.isoformat() if expires_at else None,
        }


if __name__ == "__main__":
    main()

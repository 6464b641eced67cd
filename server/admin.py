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
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from typer import Argument, Option

from finishline.api.people import Role
from finishline.rules.errors import RuleError
from server.base.database import Database
from server.base.errors import ConflictError, NotSignedInError, ServerError
from server.base.schema import migrate as make_tables
from server.base.schema import newest_revision, require_current_schema
from server.base.settings import get_settings
from server.commands import administer
from server.operations.backup import Choice
from server.operations.export import Wanted
from server.operations.integrity import check_server, require_its_logs
from server.people.accounts import (
    ROLES,
    TOKEN_PREFIX,
    NewToken,
    find_token,
)

Known = Annotated[
    bool, Option("--known", help="Its user's packages go to workers without a memory cgroup too.")
]
KeepMissing = Annotated[
    bool, Option("--keep-missing", help="List logs that the store has lost, and go on.")
]
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


def main() -> None:
    """Run one command. Exits with 1 and a sentence if it fails. Its files are private."""
    os.umask(0o077)
    gc.set_threshold(50_000, 20, 10)  # A restore or an export takes longer than a start.
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
    with administer.opened(get_settings().database_url) as database:
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
        made = _made(
            administer.make_token(database, user, role, known=known, expires_in=expires_in)
        )
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
            print(json.dumps(_made(administer.make_token(database, user, role, known=is_known))))


@app.command()
def confirm_worker(name: str, user: Annotated[str, Option(help="Owner of the worker.")]) -> None:
    """Confirm a worker of the server's own: it counts as the organisers'."""
    with _current_database() as database:
        administer.confirm(database, name, user)


@app.command()
def worker_account(names: Annotated[list[str], Argument(metavar="NAME...")]) -> None:
    """Make a worker's own account at the broker, and print its FINISHLINE_BROKER_URL, once."""
    for address in administer.make_accounts(get_settings().broker_url, names):
        print(address)


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
    current = definition == "current"
    made = administer.rescore(get_settings(), benchmark, say, current=current, dry_run=dry_run)
    print(json.dumps(made))
    if made["failed"]:
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
    wanted, nights = Wanted(public, keep_missing), None if nightly is None else keep
    place = path or nightly or Path()
    print(json.dumps(administer.export(get_settings(), place, wanted, say, nightly=nights)))


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
    choice = Choice(logs=not without_logs, keep_missing=keep_missing, keep=keep)
    print(json.dumps(administer.back_up(get_settings(), path, choice, say)))


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
    print(json.dumps(administer.restore(get_settings(), path, say, name=at, force=force)))


@app.command()
def check(
    no_proofs: Annotated[bool, Option("--no-proofs", help="Skip the proofs.")] = False,
    no_files: Annotated[bool, Option("--no-files", help="Skip the store.")] = False,
) -> None:
    """Check the store, the audit log and every proof against the database. 1 with a fault."""
    started = time.monotonic()
    with administer.serving(get_settings()) as services:
        if not no_files:
            require_its_logs(services)
        findings = check_server(services, files=not no_files, proofs=not no_proofs, say=say)
    for line in findings.faults:
        say(f"fault: {line}")
    for line in findings.orphans:
        say(f"orphan: {line}")
    counts = {
        "looked_at": findings.looked_at,
        "faults": len(findings.faults),
        "orphans": len(findings.orphans),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(counts))
    if findings.faults:
        raise typer.Exit(1)


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def _database_name() -> str:
    return make_url(get_settings().database_url).render_as_string(hide_password=True)


@contextmanager
def _current_database() -> Iterator[Database]:
    with administer.opened(get_settings().database_url) as database:
        require_current_schema(database)
        yield database


def _holds_good_token(database: Database, path: Path, *, role: str) -> bool:
    """Whether a file has a token that this database takes for the role.

    A file may outlive the database that its token was of. Raises ConflictError for another file.
    """
    secret = path.read_text().strip() if path.exists() else ""
    if not secret:
        return False
    if not secret.startswith(TOKEN_PREFIX):
        raise ConflictError(f"{path} is not a token file; pass another file, or remove this one.")
    with suppress(NotSignedInError):
        return find_token(database, secret).role == role
    return False


def _made(made: NewToken) -> dict[str, object]:
    expires_at = made.token.expires_at
    return {
        "id": made.token.id,
        "user": made.token.user.name,
        "role": made.token.role,
        "token": made.secret,
        "expires_at": expires_at.isoformat() if expires_at else None,
    }


if __name__ == "__main__":
    main()

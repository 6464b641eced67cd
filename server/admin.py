"""Commands of an administrator on the server's own machine: `python -m server.admin COMMAND`."""

import argparse
import gc
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from finishline.rules.errors import RuleError
from server.base.artifacts import make_store
from server.base.broker import Broker
from server.base.database import Database, utc_now
from server.base.errors import ConflictError, ServerError
from server.base.revision import newest_revision, require_current_schema
from server.base.schema import migrate
from server.base.services import Services
from server.base.settings import get_settings
from server.base.viewer import ORGANISER
from server.benchmarks.queries import install_archives, load_definitions, offer_added
from server.operations import commands as copying
from server.operations.integrity import look_first
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
from server.verifications.worker_probes import confirm_worker


def main() -> int:
    """Run one command; 0 when it worked. Its files are for this user alone."""
    os.umask(0o077)
    gc.set_threshold(50_000, 20, 10)  # A restore or an export takes longer than a start.
    connect_rooms()
    arguments = _parser().parse_args()
    try:
        database = Database(get_settings().database_url)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        if arguments.command == "migrate":
            migrate(database)
            print(json.dumps({"revision": newest_revision()}))
            return 0
        if arguments.command in copying.COMMANDS:
            return _run_copying(database, arguments)
        require_current_schema(database)
        if arguments.command == "rescore":
            return _rescore(database, arguments)
        if arguments.command == "worker-account":
            for address in _make_accounts(arguments.names):
                print(address)
            return 0
        if arguments.command == "confirm-worker":
            with database.write() as session:
                confirm_worker(
                    session, Administrator(), arguments.name, reason=None, owner=arguments.user
                )
            return 0
        if arguments.command == "tokens":
            for user, role in arguments.wanted:
                known = arguments.known and role == "submitter"
                print(json.dumps(_make_token(database, user, role, known=known)))
            return 0
        _print_token(database, arguments)
    except DBAPIError as error:
        told = " ".join(str(error.orig).split())
        print(f"The database {database.name} does not do it: {told}", file=sys.stderr)
        return 1
    except sqlite3.Error as error:
        print(f"The database {database.name} could not be copied: {error}", file=sys.stderr)
        return 1
    except (RuntimeError, ServerError, RuleError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        database.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m server.admin", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="make the tables of an empty database")
    token = commands.add_parser("token", help="make an API token and print it, once")
    token.add_argument("--user", required=True)
    token.add_argument("--role", required=True, choices=ROLES)
    token.add_argument(
        "--known",
        action="store_true",
        help="its user's code submissions go to workers without a memory cgroup too",
    )
    token.add_argument("--days", type=float, help="days until it expires; never, if absent")
    token.add_argument(
        "--out",
        type=Path,
        help="write the token to this file, readable by its owner alone; one that is there "
        "already stays if the database takes its token",
    )
    tokens = commands.add_parser(
        "tokens", help="make API tokens that do not expire: a JSON line for each"
    )
    tokens.add_argument("wanted", nargs="+", metavar="USER=ROLE", type=_user_and_role)
    tokens.add_argument("--known", action="store_true", help="as for a token, of submitters")
    confirmed = commands.add_parser(
        "confirm-worker", help="confirm a worker of the server's own: it counts as the organisers'"
    )
    confirmed.add_argument("name")
    confirmed.add_argument("--user", required=True, help="owner of the worker")
    account = commands.add_parser(
        "worker-account",
        help="make a worker's own account at the broker; prints FINISHLINE_BROKER_URL for it, once",
    )
    account.add_argument("names", nargs="+", metavar="name")
    rescore = commands.add_parser(
        "rescore",
        help="score every result again from its raw logs and store the changes",
    )
    rescore.add_argument("--benchmark", help="only submissions of this benchmark")
    rescore.add_argument(
        "--dry-run", action="store_true", help="report changes without storing them"
    )
    rescore.add_argument(
        "--definition",
        choices=("stored", "current"),
        default="stored",
        help="the benchmark definition each result names, or today's",
    )
    copying.add_commands(commands)
    return parser


def _user_and_role(text: str) -> tuple[str, str]:
    """Raises ArgumentTypeError."""
    user, _, role = text.rpartition("=")
    if not user or role not in ROLES:
        raise argparse.ArgumentTypeError(f"{text!r}; expected USER=ROLE, of {', '.join(ROLES)}")
    return user, role


def _run_copying(database: Database, arguments: argparse.Namespace) -> int:
    """Run a command of exports, backups or their checks."""
    if arguments.command == "restore":  # It makes the database, or replaces it.
        services = _services(database)
    else:
        require_current_schema(database)
        services = _services_with_archives(database)
    look_first(services, arguments)
    return copying.run_command(services, arguments)


def _services(database: Database) -> Services:
    settings = get_settings()
    return Services(
        settings=settings,
        database=database,
        artifacts=make_store(settings),
        benchmarks=load_definitions(settings.benchmarks_dir, database),
    )


def _services_with_archives(database: Database) -> Services:
    services = _services(database)
    with database.read(ORGANISER) as session:
        install_archives(services.benchmarks, session)
        offer_added(services.benchmarks, session)
    return services


def _rescore(database: Database, arguments: argparse.Namespace) -> int:
    """Print the changes as a JSON line; return 1 if a submission could not be scored again."""
    services = _services_with_archives(database)
    summary = rescore_submissions(
        services,
        benchmark_id=arguments.benchmark,
        current=arguments.definition == "current",
        dry_run=arguments.dry_run,
        progress=copying.say,
    )
    print(json.dumps(asdict(summary)))
    return 1 if summary.failed else 0


def _make_accounts(workers: Sequence[str]) -> list[str]:
    broker = Broker(get_settings().broker_url)
    try:
        return [broker.make_account(worker) for worker in workers]
    finally:
        broker.close()


def _print_token(database: Database, arguments: argparse.Namespace) -> None:
    if arguments.out is None:
        print(json.dumps(_token_of(database, arguments)))
    elif not _holds_good_token(database, arguments.out, role=arguments.role):
        made = _token_of(database, arguments)
        fresh = arguments.out.with_name(arguments.out.name + ".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(str(made.pop("token")) + "\n")
        fresh.replace(arguments.out)
        print(json.dumps(made))


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


def _token_of(database: Database, arguments: argparse.Namespace) -> dict[str, object]:
    expires_in = timedelta(days=arguments.days) if arguments.days is not None else None
    user, role, known = arguments.user, arguments.role, arguments.known
    return _make_token(database, user, role, known=known, expires_in=expires_in)


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
    sys.exit(main())

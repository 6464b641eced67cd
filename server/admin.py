"""Commands on the server's machine, which print JSON: `python -m server.admin COMMAND`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from typer import Argument, Option

from finishline.api.people import Role
from server.base.database import Database
from server.base.errors import ServerError
from server.base.schema import migrate as make_tables
from server.base.schema import newest_revision, require_current_schema
from server.base.settings import get_settings
from server.commands import administer
from server.people.accounts import NewToken

Known = Annotated[
    bool, Option("--known", help="Workers without a memory cgroup may train its user's code too.")
]
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


def main() -> None:
    """Run one command. Exits with 1 and a sentence if it fails. Its files are private."""
    os.umask(0o077)
    try:
        app(prog_name="python -m server.admin")
    except DBAPIError as error:
        told = " ".join(str(error.orig).split())
        name = make_url(get_settings().database_url).render_as_string(hide_password=True)
        _fail(f"The database {name} does not do it: {told}")
    except (RuntimeError, ServerError, OSError) as error:
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
        Option(help="File for the token. A file with a valid token stays as it is."),
    ] = None,
) -> None:
    """Make an API token and print it, once."""
    expires_in = timedelta(days=days) if days is not None else None
    given: dict[str, Any] = {"known": known, "expires_in": expires_in}
    with _current_database() as database:
        if out is None:
            print(json.dumps(_made(administer.make_token(database, user, role, **given))))
        elif made := administer.keep_token(database, out, user, role, **given):
            shown = _made(made)
            del shown["token"]
            print(json.dumps(shown))


@app.command()
def confirm_worker(name: str, user: Annotated[str, Option(help="Owner of the worker.")]) -> None:
    """Confirm a worker of this server, which then counts as the organisers'."""
    with _current_database() as database:
        administer.confirm(database, name, user)


@app.command()
def worker_account(names: Annotated[list[str], Argument(metavar="NAME...")]) -> None:
    """Make a worker's account at the broker, and print its FINISHLINE_BROKER_URL, once."""
    for address in administer.make_accounts(get_settings().broker_url, names):
        print(address)


@contextmanager
def _current_database() -> Iterator[Database]:
    with administer.opened(get_settings().database_url) as database:
        require_current_schema(database)
        yield database


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

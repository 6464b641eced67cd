"""Which schema the database has, which one this code was written for, and how it is made.

A server asks both at its start. Alembic would answer too, but importing it takes a twelfth of the
start's time, so it is imported only to make the tables, and a test checks that both agree.
"""

import hashlib
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from finishline.rules.text import names_text
from server.base.database import Database
from server.base.models import Base
from server.base.places import MIGRATIONS

if TYPE_CHECKING:
    from alembic.config import Config

FIRST_MIGRATION = MIGRATIONS / "versions" / "first_tables.py"
HEX_DIGITS = 12
VERSIONS = "alembic_version"
# The last commit whose migrations had numbers.
NUMBERED = "0a22c18d"


@cache
def newest_revision() -> str:
    """The beginning of a hash of the tables and of their migration: others make another schema."""
    digest = hashlib.sha256(FIRST_MIGRATION.read_bytes())
    for table in Base.metadata.sorted_tables:
        parts = sorted(str(CreateIndex(index)) for index in table.indexes)
        digest.update("".join([str(CreateTable(table)), *parts]).encode())
    return digest.hexdigest()[:HEX_DIGITS]


def require_current_schema(database: Database) -> str:
    """The database's revision, if it is the one this code was written for.

    Raises RuntimeError, which names the remedy, if it is another.
    """
    named = f"the database that FINISHLINE_DATABASE_URL names, {database.name}"
    if database.is_missing():
        raise RuntimeError(
            f"There is no file of {named}. Is it the server's? 'python -m server.admin migrate' "
            "makes one."
        )
    try:
        with database.look() as connection:
            found = require_no_other(connection, database.name)
    except OperationalError as error:
        told = " ".join(str(error.orig).split())
        raise RuntimeError(f"T{named[1:]}, does not answer: {told}") from error
    if found is None:
        raise RuntimeError(
            f"T{named[1:]}, is at revision (empty), this server needs {newest_revision()}: "
            "run 'python -m server.admin migrate' first."
        )
    return found


def require_no_other(connection: Connection, name: str) -> str | None:
    """The revision of a database: this code's, or None of an empty one.

    Raises RuntimeError if somebody else made its tables, or another commit.
    """
    found: str | None = None
    if inspect(connection).has_table(VERSIONS):
        found = connection.scalar(text(f"SELECT version_num FROM {VERSIONS}"))  # noqa: S608
    wanted = newest_revision()
    if found is None:
        tables = sorted(set(inspect(connection).get_table_names()) - {VERSIONS})
        if tables:
            raise RuntimeError(
                f"The database {name} was not changed: it has tables that Finishline did not make: "
                f"{names_text(tables)}. Hint: name an empty database in "
                "FINISHLINE_DATABASE_URL."
            )
    elif found != wanted:
        raise RuntimeError(
            f"The database {name} was not changed: another commit made its schema {found}, this "
            f"one needs {wanted}. {_hint(connection, found)}"
        )
    return found


def _hint(connection: Connection, revision: str) -> str:
    commit: str | None = NUMBERED if len(revision) == 4 and revision.isdigit() else None
    columns = {each["name"] for each in inspect(connection).get_columns(VERSIONS)}
    if commit is None and "code_commit" in columns:
        commit = connection.scalar(text(f"SELECT code_commit FROM {VERSIONS}"))  # noqa: S608
    export = "and export there with `finishline admin export` (or `python -m server.admin export`)."
    if commit is None:
        return f"It does not say which commit made it. Hint: start the one that you had, {export}"
    return f"Hint: run `git checkout {commit[:HEX_DIGITS]}`, {export}"


def alembic_config(database: Database) -> "Config":
    """Alembic's configuration for a database."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    return config


def migrate(database: Database) -> None:
    """Make the tables of an empty database, in one transaction. Leave this code's own as it is.

    Raises RuntimeError, having changed nothing, if another commit made its tables.
    """
    if not database.is_missing():
        with database.look() as connection:
            require_no_other(connection, database.name)
    from alembic import command

    command.upgrade(alembic_config(database), "head")

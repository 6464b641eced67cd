"""The schema of the database and of this code, and how its tables are made.

Alembic is imported only to make the tables: it takes a twelfth of a server's start.
"""

import hashlib
from functools import cache

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from finishline.rules.text import names_text
from server.base.database import Database
from server.base.models import Base
from server.base.places import MIGRATIONS

FIRST_MIGRATION = MIGRATIONS / "versions" / "first_tables.py"
HEX_DIGITS = 12
VERSIONS = "alembic_version"
# The last commit with numbered migrations.
NUMBERED = "0a22c18d"


@cache
def newest_revision() -> str:
    """Return the beginning of a hash of the tables and their migration."""
    digest = hashlib.sha256(FIRST_MIGRATION.read_bytes())
    for table in Base.metadata.sorted_tables:
        parts = sorted(str(CreateIndex(index)) for index in table.indexes)
        digest.update("".join([str(CreateTable(table)), *parts]).encode())
    return digest.hexdigest()[:HEX_DIGITS]


def require_current_schema(database: Database) -> str:
    """Return the database's revision. Raises RuntimeError with the remedy if it is wrong."""
    named = f"the database that FINISHLINE_DATABASE_URL names, {database.name}"
    if database.is_missing():
        raise RuntimeError(
            f"There is no file of {named}. For a server of `finishline up` pass --var FOLDER. "
            "'python -m server.admin migrate' makes a new one."
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
    """Return a database's revision, if any. Raises RuntimeError for others' tables."""
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


def migrate(database: Database) -> None:
    """Make the tables of an empty database in one transaction, or keep this code's tables.

    Raises RuntimeError before any change if another commit made the tables.
    """
    if not database.is_missing():
        with database.look() as connection:
            require_no_other(connection, database.name)
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    command.upgrade(config, "head")

"""The database's schema: bring it up to date, or refuse to start on another one."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from server.database import Database
from server.settings import CHECKOUT

MIGRATIONS: Path = CHECKOUT / "migrations"


def alembic_config(database: Database) -> Config:
    """Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    return config


def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to a revision, forwards or back ("base" removes everything)."""
    config = alembic_config(database)
    if revision == "base" or revision.startswith("-"):
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


def current_revision(database: Database) -> str | None:
    """The revision the database is at, None if it is empty."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def require_current_schema(database: Database) -> str | None:
    """The database's revision, if it is the one this code was written for.

    Raises RuntimeError with what to do if it is another.
    """
    wanted = ScriptDirectory.from_config(alembic_config(database)).get_current_head()
    found = current_revision(database)
    if found != wanted:
        raise RuntimeError(
            f"The database is at revision {found or '(empty)'}, this server needs {wanted}: "
            "run 'python -m server.admin migrate' first."
        )
    return found

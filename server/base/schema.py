"""Make the tables of an empty database. The check at a server's start is in revision.py."""

from alembic import command
from alembic.config import Config

from server.base.database import Database
from server.base.places import MIGRATIONS
from server.base.revision import require_no_other


def alembic_config(database: Database) -> Config:
    """Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    return config


def migrate(database: Database) -> None:
    """Make the tables of an empty database, in one transaction; leave this code's own as it is.

    Raises RuntimeError, having changed nothing, if another commit made its tables.
    """
    if not database.is_missing():
        with database.look() as connection:
            require_no_other(connection, database.name)
    command.upgrade(alembic_config(database), "head")

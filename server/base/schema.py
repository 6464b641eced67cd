"""Migrate the database's schema to a revision. The check at a server's start is in revision.py."""

import logging
import time

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import OperationalError

from server.base.database import Database
from server.base.places import MIGRATIONS
from server.base.revision import current_revision

log = logging.getLogger(__name__)

# While a migration waits for a table, everybody else waits behind it: so it gives up soon, lets
# them through, and comes again.
LOCK_SECONDS = 3.0
PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 300.0
# PostgreSQL's lock_not_available and deadlock_detected.
LOCK_STATES = ("55P03", "40P01")


def alembic_config(database: Database) -> Config:
    """Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    return config


def migrate(
    database: Database, revision: str = "head", *, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Bring the schema to a revision, forwards or back ("base" removes everything).

    Each migration is one transaction: one that fails changes nothing. Where others hold a table
    for long it is tried again for `patience_seconds`; then it is a RuntimeError.
    """
    config = alembic_config(database)
    backwards = revision == "base" or revision.startswith("-")
    until = time.monotonic() + patience_seconds
    while True:
        try:
            (command.downgrade if backwards else command.upgrade)(config, revision)
        except OperationalError as error:
            if not _is_about_locks(error):
                raise
            if time.monotonic() >= until:
                raise RuntimeError(
                    "Others hold what the migration must change: the database is at revision "
                    f"{current_revision(database) or '(empty)'}, and nothing is half done. End "
                    "the transactions that last long, then run it again."
                ) from error
            log.warning("the migration waits for others to end their transactions")
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _is_about_locks(error: OperationalError) -> bool:
    """Whether a statement failed because another transaction holds a lock that it needs."""
    state = getattr(error.orig, "sqlstate", None)
    return state in LOCK_STATES or "database is locked" in str(error.orig)

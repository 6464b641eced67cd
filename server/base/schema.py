"""Migrate the database's schema to a revision. The check at a server's start is in revision.py.

No migration goes back: the backup from before it does.
"""

import logging
import time

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.exc import OperationalError

from server.base.database import Database
from server.base.places import MIGRATIONS
from server.base.revision import current_revision
from server.base.take_over import number_of

log = logging.getLogger(__name__)

# While a migration waits for a table, everybody else waits behind it: so it gives up soon, lets
# them through, and comes again.
LOCK_SECONDS = 3.0
PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 300.0
# Of PostgreSQL, held while a migration runs: any number that no other program takes there.
MIGRATION_LOCK = 7_270_011
# PostgreSQL's lock_not_available and deadlock_detected.
LOCK_STATES = ("55P03", "40P01")


def alembic_config(database: Database) -> Config:
    """Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["database"] = database
    return config


def known_revisions(database: Database) -> list[str]:
    """The revisions that have a migration, newest first."""
    scripts = ScriptDirectory.from_config(alembic_config(database))
    return [each.revision for each in scripts.walk_revisions()]


def is_behind(database: Database) -> bool:
    """Whether a migration would change tables that are there, once none runs any more.

    Raises RuntimeError if the database is at a revision from which none leads on.
    """
    with database.engine.connect() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        found, known = current_revision(database), known_revisions(database)
    if found is not None and found not in known:
        number_of(found)
    return found not in (None, known[0])


def migrate(
    database: Database, revision: str = "head", *, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Bring the schema forwards to a revision.

    Each migration is one transaction: one that fails changes nothing. Where others hold a table
    for long it is tried again for `patience_seconds`; then it is a RuntimeError.
    """
    config = alembic_config(database)
    until = time.monotonic() + patience_seconds
    while True:
        try:
            command.upgrade(config, revision)
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

"""Runs migrations on the database that server.base.schema hands over, or that the settings name."""

from alembic import context
from sqlalchemy import Connection

from server.base.database import Database, UtcDateTime
from server.base.models import Base
from server.base.schema import LOCK_SECONDS, MIGRATION_LOCK
from server.base.settings import get_settings
from server.base.take_over import take_over


def render_type(kind: str, item: object, _context: object) -> str | bool:
    """How a column type of ours is written in a migration: as what the database keeps."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


database: Database = context.config.attributes.get("database") or Database(
    get_settings().database_url
)


def prepare(connection: Connection) -> None:
    """Wait for no lock for long, and let only one migration run at a time.

    SQLite has one writer anyway. To change a table there it is built anew and the old one dropped,
    which takes what refers to it along or fails: so foreign keys are off, which SQLite does outside
    a transaction only. Hence the driver's own connection, because ours begins one first.
    """
    if not database.is_sqlite:
        connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_SECONDS:g}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
        connection.commit()
        return
    # A transaction that began as a reader's could not go on once somebody else wrote.
    connection.execution_options(finishline_write=True)
    for pragma in ("foreign_keys=OFF", f"busy_timeout={LOCK_SECONDS * 1000:.0f}"):
        connection.connection.driver_connection.execute(f"PRAGMA {pragma}").close()  # type: ignore[union-attr]


with database.engine.connect() as connection:
    try:
        prepare(connection)
        scripts = {each.revision: each.module for each in context.script.walk_revisions()}
        with connection.begin():
            take_over(connection, scripts[str(context.script.get_base())].tables, scripts)
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=database.is_sqlite,
            render_item=render_type,
            compare_type=True,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    finally:
        connection.rollback()
        # The lock and the settings belong to the connection, which nobody else gets.
        connection.invalidate()

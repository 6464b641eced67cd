"""Runs migrations on the database that server.schema hands over, or that the settings name."""

from alembic import context
from sqlalchemy import Connection

from server.database import Database, UtcDateTime
from server.models import Base
from server.settings import get_settings


def render_type(kind: str, item: object, _context: object) -> str | bool:
    """How a column type of ours is written in a migration: as what the database keeps."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


database: Database = context.config.attributes.get("database") or Database(
    get_settings().database_url
)


def keep_foreign_keys(connection: Connection, *, enforced: bool) -> None:
    """Switch SQLite's foreign keys, which it does outside a transaction only.

    To change a table it is built anew and the old one dropped, which takes what refers to it along
    or fails.
    """
    if database.is_sqlite:
        pragma = f"PRAGMA foreign_keys={'ON' if enforced else 'OFF'}"
        # The driver's own connection, because ours begins a transaction first.
        connection.connection.driver_connection.execute(pragma).close()  # type: ignore[union-attr]


with database.engine.connect() as connection:
    keep_foreign_keys(connection, enforced=False)
    try:
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
        keep_foreign_keys(connection, enforced=True)

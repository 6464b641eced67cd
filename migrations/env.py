"""Runs migrations on the database that server.schema hands over, or that the settings name."""

from alembic import context

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

with database.engine.connect() as connection:
    if database.is_sqlite:
        # SQLite rebuilds tables to change them; foreign keys would cascade while it does.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.commit()
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

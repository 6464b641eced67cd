"""Runs migrations on the database that server.base.schema hands over."""

from alembic import context
from sqlalchemy import text

from server.base.database import Database
from server.base.schema import require_no_other

# Of PostgreSQL, held while a migration runs: any number that no other program takes there.
MIGRATION_LOCK = 7_270_011

database: Database = context.config.attributes["database"]
with database.engine.connect() as connection:
    # A transaction that began as a reader's could not go on once somebody else wrote.
    connection.execution_options(finishline_write=True)
    with connection.begin():
        if not database.is_sqlite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
        require_no_other(connection, database.name)
        context.configure(connection=connection)
        context.run_migrations()

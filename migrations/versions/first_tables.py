"""Create everything that Finishline stores, from the models (decision 0019)."""

from alembic import op
from sqlalchemy import Column, String

from server.base.models import Base
from server.base.places import code_version
from server.base.schema import newest_revision
from server.base.settings import get_settings

revision: str = newest_revision()
down_revision: str | None = None

# Tables that only ever get new rows: the trigger that refuses changes, and its message.
ADDED_TO = {
    "audit_log": ("audit_log_refuses", "the audit log is only ever added to"),
    "prices": ("prices_refuse", "the price book is only ever added to"),
}


def upgrade() -> None:
    """Create every table, and the triggers that refuse changes of two."""
    connection = op.get_bind()
    Base.metadata.create_all(connection, checkfirst=False)
    refuse = _refuse_on_sqlite if connection.dialect.name == "sqlite" else _refuse_on_postgresql
    for name, (trigger, message) in ADDED_TO.items():
        refuse(name, trigger, message)
    commit = code_version(get_settings().code_commit).commit  # For who reads it later.
    op.add_column("alembic_version", Column("code_commit", String(64), server_default=commit))


def _refuse_on_sqlite(table: str, trigger: str, message: str) -> None:
    for event in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {trigger}_{event.lower()} BEFORE {event} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )


def _refuse_on_postgresql(table: str, trigger: str, message: str) -> None:
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {trigger} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )

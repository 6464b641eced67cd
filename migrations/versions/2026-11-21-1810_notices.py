"""notices: events, the webhooks and addresses they are told to, and their deliveries."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "notice_events",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("benchmark_id", sa.String(length=100), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("spread_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_notice_events_user_id_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_events")),
    )
    op.create_index(
        op.f("ix_notice_events_spread_at_created_at"), "notice_events", ["spread_at", "created_at"]
    )
    _create_listener("webhooks", *_webhook_columns())
    _create_listener(
        "mail_subscriptions",
        sa.Column("address", sa.String(length=254), nullable=False),
        sa.Column("verified_at", MOMENT, nullable=True),
        sa.Column("ended_at", MOMENT, nullable=True),
    )
    op.create_index(op.f("ix_mail_subscriptions_address"), "mail_subscriptions", ["address"])
    _create_deliveries()


def _webhook_columns() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.String(length=100), nullable=True),
        sa.Column("previous_until", MOMENT, nullable=True),
        sa.Column("failing_since", MOMENT, nullable=True),
        sa.Column("disabled_at", MOMENT, nullable=True),
        sa.Column("disabled_because", sa.Text(), nullable=True),
    )


def _create_listener(table: str, *own: sa.Column[object]) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("scope", sa.String(length=20), nullable=False),
        sa.Column("benchmark_id", sa.String(length=100), nullable=True),
        sa.Column("secret", sa.String(length=100), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        *own,
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f(f"fk_{table}_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_user_id"), table, ["user_id"])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.String(length=24), nullable=False),
        sa.Column("webhook_id", sa.String(length=20), nullable=True),
        sa.Column("mail_id", sa.String(length=20), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("tries", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["event_id"],
            ["notice_events.id"],
            name=op.f("fk_deliveries_event_id_notice_events"),
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id_webhooks")
        ),
        sa.ForeignKeyConstraint(
            ["mail_id"],
            ["mail_subscriptions.id"],
            name=op.f("fk_deliveries_mail_id_mail_subscriptions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint(
            "event_id", "webhook_id", name=op.f("uq_deliveries_event_id_webhook_id")
        ),
        sa.UniqueConstraint("event_id", "mail_id", name=op.f("uq_deliveries_event_id_mail_id")),
    )
    for columns in (["state", "due_at"], ["created_at"], ["webhook_id"], ["mail_id"]):
        op.create_index(op.f(f"ix_deliveries_{'_'.join(columns)}"), "deliveries", columns)


def downgrade() -> None:
    """Take back."""
    for table in ("deliveries", "mail_subscriptions", "webhooks", "notice_events"):
        op.drop_table(table)

"""prices: what an instance costs from which day on, never changed, only added to."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

REFUSAL = "the price book is only ever added to"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "prices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=100), nullable=False),
        sa.Column("instance", sa.String(length=200), nullable=False),
        sa.Column("region", sa.String(length=100), nullable=False),
        sa.Column("pricing", sa.String(length=20), nullable=False),
        sa.Column("usd_per_hour", sa.Double(), nullable=False),
        sa.Column("effective_on", sa.Date(), nullable=False),
        sa.Column("source_url", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("supersedes", sa.Integer(), nullable=True),
        sa.Column("added_by", sa.Integer(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["added_by"], ["users.id"], name=op.f("fk_prices_added_by_users")),
        sa.ForeignKeyConstraint(
            ["supersedes"], ["prices.id"], name=op.f("fk_prices_supersedes_prices")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prices")),
        sa.UniqueConstraint("supersedes", name=op.f("uq_prices_supersedes")),
    )
    op.create_index(
        op.f("ix_prices_provider_instance_region"), "prices", ["provider", "instance", "region"]
    )
    if op.get_bind().dialect.name == "postgresql":
        _refuse_on_postgresql()
    else:
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER prices_refuse_{event.lower()} BEFORE {event} ON prices "
                f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
            )


def _refuse_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION prices_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER prices_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON prices "
        "FOR EACH STATEMENT EXECUTE FUNCTION prices_refuse()"
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("prices")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION prices_refuse()")

"""tickets: seeds that are drawn for a claim before its training."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0035"
down_revision: str | None = "0034"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "tickets",
        sa.Column("id", sa.String(20), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("benchmark_sha256", sa.String(64), nullable=False),
        sa.Column("division", sa.String(20), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("hardware_class", sa.String(100), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submission_id", sa.String(20), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_tickets_user_id_users"),
        sa.PrimaryKeyConstraint("id", name="pk_tickets"),
    )
    op.create_index("ix_tickets_user_id_benchmark_id", "tickets", ["user_id", "benchmark_id"])
    op.add_column("submissions", sa.Column("ticket_id", sa.String(20), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("submissions", "ticket_id")
    op.drop_table("tickets")

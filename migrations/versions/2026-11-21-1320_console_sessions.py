"""console_sessions: browsers that are signed in."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "console_sessions",
        sa.Column("id_sha256", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("notices", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_console_sessions_token_id_tokens")
        ),
        sa.PrimaryKeyConstraint("id_sha256", name=op.f("pk_console_sessions")),
    )
    op.create_index(op.f("ix_console_sessions_token_id"), "console_sessions", ["token_id"])


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_console_sessions_token_id"), table_name="console_sessions")
    op.drop_table("console_sessions")

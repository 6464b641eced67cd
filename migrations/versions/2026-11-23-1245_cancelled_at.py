"""cancelled_at: a replay that is cancelled while it runs is finished first."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0042"
down_revision: str | None = "0041"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.add_column(
        "verifications", sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True)
    )


def downgrade() -> None:
    """Take back. What was cancelled and goes on gets its verdict."""
    op.drop_column("verifications", "cancelled_at")

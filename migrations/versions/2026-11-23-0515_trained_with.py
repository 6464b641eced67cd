"""trained with: whether the reference trained or own code, and what tuning the settings took."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. Nothing tells whose code trained what is stored, so it counts as own."""
    op.add_column(
        "submissions",
        sa.Column("trained_with", sa.String(10), server_default="own", nullable=False),
    )
    op.add_column("submissions", sa.Column("tuning", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("submissions", "tuning")
    op.drop_column("submissions", "trained_with")

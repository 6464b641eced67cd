"""board changes: which submission each of a board's latest versions changed."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. Nothing is known of earlier versions: boards are then read whole, once."""
    op.create_table(
        "board_changes",
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("submission_id", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("benchmark_id", "version", name=op.f("pk_board_changes")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("board_changes")

"""hidden claims: until when seeds, curves and logs of a claim are hidden from strangers."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0036"
down_revision: str | None = "0035"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. What is stored was everybody's to see, and stays so."""
    op.add_column(
        "submissions", sa.Column("revealed_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.create_index("ix_submissions_revealed_at", "submissions", ["revealed_at"])


def downgrade() -> None:
    """Take back."""
    op.drop_index("ix_submissions_revealed_at", table_name="submissions")
    op.drop_column("submissions", "revealed_at")

"""board changes: which submission each of a board's latest versions changed.

And indexes for the top of a board and for its latest submissions.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0017"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TOP = "ix_submissions_benchmark_id_kind_tta_seconds"
LATEST = "ix_submissions_benchmark_id_submitted_at"
DIVISION = "ix_submissions_benchmark_id_division"


def upgrade() -> None:
    """Apply. Nothing is known of earlier versions: boards are then read whole, once."""
    op.create_table(
        "board_changes",
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("submission_id", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("benchmark_id", "version", name=op.f("pk_board_changes")),
    )
    op.create_index(op.f(TOP), "submissions", ["benchmark_id", "kind", "tta_seconds"])
    op.create_index(op.f(LATEST), "submissions", ["benchmark_id", "submitted_at"])
    op.drop_index(op.f(DIVISION), table_name="submissions")


def downgrade() -> None:
    """Take back."""
    op.create_index(op.f(DIVISION), "submissions", ["benchmark_id", "division"])
    op.drop_index(op.f(LATEST), table_name="submissions")
    op.drop_index(op.f(TOP), table_name="submissions")
    op.drop_table("board_changes")

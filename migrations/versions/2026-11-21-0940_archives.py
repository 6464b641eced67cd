"""archives: runs without evaluations, whose result it is, and what reference points are held to."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("submissions") as submissions:
        submissions.add_column(
            sa.Column("archive", sa.Boolean(), server_default=sa.false(), nullable=False)
        )
        submissions.add_column(sa.Column("organisation", sa.Text(), nullable=True))
        submissions.add_column(sa.Column("submitted_on", sa.Date(), nullable=True))
    with op.batch_alter_table("runs") as runs:
        runs.alter_column("best_quality", existing_type=sa.Double(), nullable=True)
        runs.add_column(sa.Column("batch_size", sa.BigInteger(), nullable=True))
        runs.add_column(sa.Column("convergence", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take back."""
    # The earlier schema has no word for a run that was never evaluated.
    op.execute("UPDATE runs SET best_quality = 0 WHERE best_quality IS NULL")
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("convergence")
        runs.drop_column("batch_size")
        runs.alter_column("best_quality", existing_type=sa.Double(), nullable=False)
    with op.batch_alter_table("submissions") as submissions:
        submissions.drop_column("submitted_on")
        submissions.drop_column("organisation")
        submissions.drop_column("archive")

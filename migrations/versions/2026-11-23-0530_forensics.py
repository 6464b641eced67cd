"""forensics: nothing compares the logs of different submissions by their trainings any more."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BY_TRAINING = "ix_runs_training_sha256"


def upgrade() -> None:
    """Apply."""
    op.drop_index(op.f(BY_TRAINING), table_name="runs")
    op.drop_column("runs", "training_sha256")
    op.drop_column("submissions", "copies")


def downgrade() -> None:
    """Take back. Both columns stay empty."""
    op.add_column("submissions", sa.Column("copies", sa.JSON(), nullable=True))
    op.add_column("runs", sa.Column("training_sha256", sa.String(64), nullable=True))
    op.create_index(op.f(BY_TRAINING), "runs", ["training_sha256"])

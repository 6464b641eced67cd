"""copies: runs by their training, and what was handed in before."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BY_TRAINING = "ix_runs_training_sha256"
BY_QUALITY = "ix_runs_best_quality_epochs_to_target"


def upgrade() -> None:
    """Apply. Nothing fills the columns: a later revision drops them."""
    op.add_column("runs", sa.Column("training_sha256", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("copies", sa.JSON(), nullable=True))
    op.create_index(op.f(BY_TRAINING), "runs", ["training_sha256"])
    op.drop_index(op.f(BY_QUALITY), table_name="runs")


def downgrade() -> None:
    """Take back."""
    op.create_index(op.f(BY_QUALITY), "runs", ["best_quality", "epochs_to_target"])
    op.drop_index(op.f(BY_TRAINING), table_name="runs")
    op.drop_column("submissions", "copies")
    op.drop_column("runs", "training_sha256")

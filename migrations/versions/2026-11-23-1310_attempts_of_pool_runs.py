"""attempts of pool runs: which attempt trained each, so that a worker's runs can be taken out."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0043"
down_revision: str | None = "0042"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. Until here every run of a pool was of the attempt that was reported."""
    op.add_column("pool_runs", sa.Column("attempt_id", sa.String(20), nullable=True))
    op.execute(
        """
        UPDATE pool_runs SET attempt_id = (
          SELECT a.id FROM attempts a
          WHERE a.verification_id = pool_runs.verification_id AND a.state = 'done'
          ORDER BY a.number DESC LIMIT 1
        )
        """
    )


def downgrade() -> None:
    """Take back."""
    op.drop_column("pool_runs", "attempt_id")

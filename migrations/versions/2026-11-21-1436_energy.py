"""energy: what a run to the target took in the replay that a submission's status rests on."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. A verdict published before has its energy in its report, and nowhere else."""
    op.add_column("submissions", sa.Column("energy_joules", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("submissions", "energy_joules")

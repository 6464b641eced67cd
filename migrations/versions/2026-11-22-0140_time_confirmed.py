"""time confirmed: whether the verdict that a status rests on confirms the claimed time."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.add_column("submissions", sa.Column("time_confirmed", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("submissions", "time_confirmed")

"""no time confirmed: our own time ranks; a verdict's reasons say whether the claimed agrees."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0040"
down_revision: str | None = "0039"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.drop_column("submissions", "time_confirmed")


def downgrade() -> None:
    """Take back. No submission is told to have its time confirmed."""
    op.add_column("submissions", sa.Column("time_confirmed", sa.Boolean(), nullable=True))

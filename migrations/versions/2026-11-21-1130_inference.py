"""inference: submissions without runs, with what 10,000 items cost."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    # Both databases add and drop plain columns in place, so no table with rows is built anew.
    kind = sa.Column("kind", sa.String(length=20), server_default="train", nullable=False)
    op.add_column("submissions", kind)
    op.add_column("submissions", sa.Column("cost_usd_per_10000", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take back."""
    # The earlier schema has no word for a submission without runs, and no way to show one.
    op.execute("DELETE FROM submissions WHERE kind = 'inference'")
    op.drop_column("submissions", "cost_usd_per_10000")
    op.drop_column("submissions", "kind")

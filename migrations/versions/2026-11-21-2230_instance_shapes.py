"""shapes: what an instance is, beside what it costs."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

COLUMNS = ("accelerator", "accelerator_count", "processor_count", "memory_gib")


def upgrade() -> None:
    """Apply. No entry is touched: of those that are there no shape is known."""
    op.add_column("prices", sa.Column("accelerator", sa.String(200), nullable=True))
    op.add_column("prices", sa.Column("accelerator_count", sa.Integer(), nullable=True))
    op.add_column("prices", sa.Column("processor_count", sa.Integer(), nullable=True))
    op.add_column("prices", sa.Column("memory_gib", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take back. The prices stay, and so do the triggers that keep them."""
    for name in reversed(COLUMNS):
        op.drop_column("prices", name)

"""Prices of owned systems, with what they are derived from."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0053"
down_revision: str | None = "0052"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; nothing that is stored changes."""
    op.add_column("prices", sa.Column("ownership", sa.JSON(), nullable=True))

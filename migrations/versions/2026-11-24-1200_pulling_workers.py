"""Workers that ask the server itself for work."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0052"
down_revision: str | None = "0051"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; nothing that is stored changes."""
    op.add_column("workers", sa.Column("pulled_at", sa.DateTime(timezone=True), nullable=True))

"""Rules that are waived for one submission."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0056"
down_revision: str | None = "0055"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; nothing that is stored changes."""
    op.add_column("submissions", sa.Column("waivers", sa.JSON(), nullable=True))

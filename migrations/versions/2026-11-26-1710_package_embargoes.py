"""Training packages: the moment before which their submitter keeps the source back."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0060"
down_revision: str | None = "0059"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; nothing that is stored changes."""
    op.add_column(
        "trainings", sa.Column("embargo_until", sa.DateTime(timezone=True), nullable=True)
    )

"""Calibrations and trainings: the precision, where it is not the reference's own."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0061"
down_revision: str | None = "0060"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the columns; nothing that is stored changes."""
    for table in ("calibrations", "job_trainings"):
        op.add_column(table, sa.Column("precision", sa.String(10), nullable=True))

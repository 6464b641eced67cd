"""Training packages: their speed-up over the reference, with its interval."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0058"
down_revision: str | None = "0057"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the columns; nothing that is stored changes."""
    for name in ("speed_up", "speed_up_low", "speed_up_high"):
        op.add_column("trainings", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("trainings", sa.Column("speed_up_pairs", sa.Integer(), nullable=True))

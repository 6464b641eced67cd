"""Links to join: whether an organiser knows who joins by them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0059"
down_revision: str | None = "0058"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; who joined by a link stays as they are."""
    column = sa.Column("known", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("invitations", column)

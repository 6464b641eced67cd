"""Users: the name that readers see in place of the account's."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0057"
down_revision: str | None = "0056"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the column; nothing that is stored changes."""
    op.add_column("users", sa.Column("display_name", sa.String(100), nullable=True))

"""no shapes: a price is of an instance by its name; what it is, the registry of classes says."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0039"
down_revision: str | None = "0038"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

COLUMNS = {
    "accelerator": sa.String(200),
    "accelerator_count": sa.Integer(),
    "processor_count": sa.Integer(),
    "memory_gib": sa.Double(),
}


def upgrade() -> None:
    """Apply. The prices stay, and so do the triggers that keep them."""
    for name in COLUMNS:
        op.drop_column("prices", name)


def downgrade() -> None:
    """Take back. No shape is known of any entry any more."""
    for name, kind in COLUMNS.items():
        op.add_column("prices", sa.Column(name, kind, nullable=True))

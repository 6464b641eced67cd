"""confirmed workers: the registry of hardware classes, and who confirmed a worker for its class."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. Workers that are there already wait for an organiser's confirmation."""
    op.create_table(
        "hardware_classes",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("accelerator", sa.String(200), nullable=True),
        sa.Column("accelerator_count", sa.Integer(), nullable=False),
        sa.Column("processor", sa.String(200), nullable=False),
        sa.Column("processor_count", sa.Integer(), nullable=False),
        sa.Column("roof", sa.Double(), nullable=True),
        sa.Column("origin", sa.String(200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    with op.batch_alter_table("workers") as batch:
        batch.add_column(sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True))
        batch.add_column(sa.Column("confirmed_by", sa.Integer(), nullable=True))
        batch.create_foreign_key(None, "users", ["confirmed_by"], ["id"])


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("workers") as batch:
        batch.drop_column("confirmed_by")
        batch.drop_column("confirmed_at")
    op.drop_table("hardware_classes")

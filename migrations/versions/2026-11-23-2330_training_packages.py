"""Training packages: their table, the boxes of workers, and participants who are known."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0048"
down_revision: str | None = "0047"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the table and the two columns; nothing that is stored changes."""
    op.create_table(
        "trainings",
        sa.Column("submission_id", sa.String(20), nullable=False),
        sa.Column("package_sha256", sa.String(64), nullable=False),
        sa.Column("hardware_class", sa.String(200), nullable=False),
        sa.Column("environment", sa.String(64), nullable=False),
        sa.Column("environment_sha256", sa.String(64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("compressed_bytes", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name="fk_trainings_submission_id_submissions"
        ),
        sa.PrimaryKeyConstraint("submission_id", name="pk_trainings"),
        sa.UniqueConstraint(
            "package_sha256", "hardware_class", name="uq_trainings_package_sha256_hardware_class"
        ),
    )
    op.add_column("workers", sa.Column("box", sa.JSON(), nullable=True))
    op.add_column("users", sa.Column("known_at", sa.DateTime(timezone=True), nullable=True))

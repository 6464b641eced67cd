"""Benchmarks that organisers added, and their files."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0049"
down_revision: str | None = "0048"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add both tables; nothing that is stored changes."""
    op.create_table(
        "added_benchmarks",
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("definition_sha256", sa.String(64), nullable=False),
        sa.Column("added_by", sa.Integer(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["definition_sha256"],
            ["benchmark_definitions.sha256"],
            name="fk_added_benchmarks_definition_sha256_benchmark_definitions",
        ),
        sa.ForeignKeyConstraint(
            ["added_by"], ["users.id"], name="fk_added_benchmarks_added_by_users"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_added_benchmarks"),
    )
    op.create_table(
        "benchmark_files",
        sa.Column("definition_sha256", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("file_sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["definition_sha256"],
            ["benchmark_definitions.sha256"],
            name="fk_benchmark_files_definition_sha256_benchmark_definitions",
        ),
        sa.PrimaryKeyConstraint("definition_sha256", "name", name="pk_benchmark_files"),
    )

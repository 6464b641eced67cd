"""phases: a benchmark's dates; submissions under embargo, and withdrawn ones."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. What is stored was published, so none of it is under embargo."""
    op.add_column(
        "submissions",
        sa.Column("embargoed", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.add_column(
        "submissions", sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column("submissions", sa.Column("withdrawn_by", sa.String(100), nullable=True))
    op.add_column("submissions", sa.Column("withdrawn_because", sa.Text(), nullable=True))
    embargoed = sa.column("embargoed", sa.Boolean()).is_(sa.true())
    op.create_index(
        op.f("ix_submissions_embargoed"),
        "submissions",
        ["embargoed"],
        sqlite_where=embargoed,
        postgresql_where=embargoed,
    )
    op.create_table(
        "benchmark_phases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("opens_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("freezes_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("embargo_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_sha256", sa.String(64), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["frozen_sha256"],
            ["benchmark_definitions.sha256"],
            name=op.f("fk_benchmark_phases_frozen_sha256_benchmark_definitions"),
        ),
        sa.ForeignKeyConstraint(
            ["set_by"], ["users.id"], name=op.f("fk_benchmark_phases_set_by_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benchmark_phases")),
    )
    op.create_index(op.f("ix_benchmark_phases_benchmark_id"), "benchmark_phases", ["benchmark_id"])


def downgrade() -> None:
    """Take back. What was withdrawn or under embargo is on its board again."""
    op.drop_table("benchmark_phases")
    op.drop_index(op.f("ix_submissions_embargoed"), table_name="submissions")
    for name in ("withdrawn_because", "withdrawn_by", "withdrawn_at", "embargoed"):
        op.drop_column("submissions", name)

"""calibrations: the reference measured, its runs, and which one judges."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

SHA256_INDEX = "ix_calibrations_benchmark_sha256"
JUDGED_BY = "fk_verifications_calibration_id_calibrations"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("benchmark_id", sa.String(length=100), nullable=False),
        sa.Column("benchmark_sha256", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.Integer(), nullable=False),
        sa.Column("batch_sizes", sa.JSON(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("adopted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("adopted_by", sa.Integer(), nullable=True),
        sa.Column("adopted_because", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_sha256"],
            ["benchmark_definitions.sha256"],
            name=op.f("fk_calibrations_benchmark_sha256_benchmark_definitions"),
        ),
        sa.ForeignKeyConstraint(
            ["requested_by"], ["users.id"], name=op.f("fk_calibrations_requested_by_users")
        ),
        sa.ForeignKeyConstraint(
            ["adopted_by"], ["users.id"], name=op.f("fk_calibrations_adopted_by_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
        sa.UniqueConstraint(
            "benchmark_id", "version", name=op.f("uq_calibrations_benchmark_id_version")
        ),
    )
    op.create_index(op.f(SHA256_INDEX), "calibrations", ["benchmark_sha256"], unique=False)
    op.create_table(
        "calibration_runs",
        sa.Column("calibration_id", sa.String(length=20), nullable=False),
        sa.Column("batch_size", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("verification_id", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("quality", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("system", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["calibration_id"],
            ["calibrations.id"],
            name=op.f("fk_calibration_runs_calibration_id_calibrations"),
        ),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_calibration_runs_verification_id_verifications"),
        ),
        sa.PrimaryKeyConstraint(
            "calibration_id", "batch_size", "seed", name=op.f("pk_calibration_runs")
        ),
    )
    with op.batch_alter_table("verifications") as verifications:
        verifications.create_foreign_key(
            op.f(JUDGED_BY), "calibrations", ["calibration_id"], ["id"]
        )


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("verifications") as verifications:
        verifications.drop_constraint(op.f(JUDGED_BY), type_="foreignkey")
    op.drop_table("calibration_runs")
    op.drop_index(op.f(SHA256_INDEX), table_name="calibrations")
    op.drop_table("calibrations")

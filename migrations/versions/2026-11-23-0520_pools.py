"""pools: the sealed runs of a configuration, and the evidence that a submission has."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OF_SUBMISSION = "fk_submissions_pool_id_pools"
OF_VERIFICATION = "fk_verifications_pool_id_pools"
SUBMISSIONS = sa.table(
    "submissions",
    sa.column("archive", sa.Boolean()),
    sa.column("status", sa.String(20)),
    sa.column("evidence", sa.String(12)),
    sa.column("check_word", sa.String(16)),
)
CHECK_OF_STATUS = {
    "claimed": "none",
    "verifying": "queued",
    "verified": "epochs_agree",
    "inconclusive": "undecided",
    "rejected": "contradicted",
}


def upgrade() -> None:
    """Apply. What is stored is published or claimed until its pool says more."""
    _create_pools()
    _create_pool_runs()
    with op.batch_alter_table("submissions") as submissions:
        submissions.add_column(
            sa.Column("evidence", sa.String(12), server_default="claimed", nullable=False)
        )
        submissions.add_column(sa.Column("check_word", sa.String(16), nullable=True))
        submissions.add_column(sa.Column("pool_id", sa.String(20), nullable=True))
        submissions.create_foreign_key(op.f(OF_SUBMISSION), "pools", ["pool_id"], ["id"])
    op.create_index(op.f("ix_submissions_pool_id"), "submissions", ["pool_id"])
    with op.batch_alter_table("verifications") as verifications:
        verifications.add_column(sa.Column("pool_id", sa.String(20), nullable=True))
        verifications.add_column(
            sa.Column("own_runs", sa.Integer(), server_default="0", nullable=False)
        )
        verifications.add_column(
            sa.Column("fresh", sa.Boolean(), server_default=sa.false(), nullable=False)
        )
        verifications.create_foreign_key(op.f(OF_VERIFICATION), "pools", ["pool_id"], ["id"])
    op.create_index(op.f("ix_verifications_pool_id"), "verifications", ["pool_id"])
    _fill()


def _fill() -> None:
    of_archives = SUBMISSIONS.c.archive.is_(sa.true())
    check = sa.case(CHECK_OF_STATUS, value=SUBMISSIONS.c.status, else_="none")
    op.execute(sa.update(SUBMISSIONS).where(of_archives).values(evidence="published"))
    op.execute(sa.update(SUBMISSIONS).where(~of_archives).values(check_word=check))


def _create_pools() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.String(20), nullable=False),
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("benchmark_sha256", sa.String(64), nullable=False),
        sa.Column("division", sa.String(20), nullable=False),
        sa.Column("hardware_class", sa.String(200), nullable=False),
        sa.Column("configuration_sha256", sa.String(64), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_because", sa.Text(), nullable=True),
        sa.Column("measured_seconds", sa.Double(), nullable=True),
        sa.Column("low_seconds", sa.Double(), nullable=True),
        sa.Column("high_seconds", sa.Double(), nullable=True),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_sha256"],
            ["benchmark_definitions.sha256"],
            name=op.f("fk_pools_benchmark_sha256_benchmark_definitions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
    )
    op.create_index(
        op.f("ix_pools_configuration_sha256_closed_at"),
        "pools",
        ["configuration_sha256", "closed_at"],
    )
    op.create_index(
        op.f("ix_pools_benchmark_id_hardware_class"), "pools", ["benchmark_id", "hardware_class"]
    )


def _create_pool_runs() -> None:
    op.create_table(
        "pool_runs",
        sa.Column("verification_id", sa.String(20), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pool_id", sa.String(20), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("epochs", sa.Double(), nullable=True),
        sa.Column("fresh", sa.Boolean(), nullable=False),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_pool_runs_verification_id_verifications"),
        ),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_runs_pool_id_pools")),
        sa.PrimaryKeyConstraint("verification_id", "index", name=op.f("pk_pool_runs")),
    )
    op.create_index(op.f("ix_pool_runs_pool_id"), "pool_runs", ["pool_id"])


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_verifications_pool_id"), table_name="verifications")
    with op.batch_alter_table("verifications") as verifications:
        verifications.drop_constraint(op.f(OF_VERIFICATION), type_="foreignkey")
        for name in ("fresh", "own_runs", "pool_id"):
            verifications.drop_column(name)
    op.drop_index(op.f("ix_submissions_pool_id"), table_name="submissions")
    with op.batch_alter_table("submissions") as submissions:
        submissions.drop_constraint(op.f(OF_SUBMISSION), type_="foreignkey")
        for name in ("pool_id", "check_word", "evidence"):
            submissions.drop_column(name)
    op.drop_table("pool_runs")
    op.drop_table("pools")

"""worker_probes, workers that are out, and the precision that a submission states and shows."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

WORKER_INDEX = "ix_worker_probes_worker_configuration"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "worker_probes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("moment", sa.String(length=20), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempt_id", sa.String(length=20), nullable=True),
        sa.Column("gflops", sa.Double(), nullable=True),
        sa.Column("configuration", sa.String(length=300), nullable=True),
        sa.Column("baseline_gflops", sa.Double(), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("host", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["worker"], ["workers.name"], name=op.f("fk_worker_probes_worker_workers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker_probes")),
    )
    op.create_index(op.f(WORKER_INDEX), "worker_probes", ["worker", "configuration"])
    with op.batch_alter_table("workers") as workers:
        workers.add_column(sa.Column("drift", sa.Text(), nullable=True))
        workers.add_column(sa.Column("drifted_at", sa.DateTime(timezone=True), nullable=True))
        workers.add_column(sa.Column("baseline_since", sa.DateTime(timezone=True), nullable=True))
    with op.batch_alter_table("submissions") as submissions:
        submissions.add_column(sa.Column("precision", sa.String(length=10), nullable=True))
        submissions.add_column(sa.Column("precision_measured", sa.String(length=10), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("submissions") as submissions:
        submissions.drop_column("precision_measured")
        submissions.drop_column("precision")
    with op.batch_alter_table("workers") as workers:
        workers.drop_column("baseline_since")
        workers.drop_column("drifted_at")
        workers.drop_column("drift")
    op.drop_index(op.f(WORKER_INDEX), table_name="worker_probes")
    op.drop_table("worker_probes")

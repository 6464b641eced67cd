"""copies: runs by their training, and what was handed in before."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from rules.curve import CurveRow, evaluation_of
from rules.fingerprint import training_sha256

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BY_TRAINING = "ix_runs_training_sha256"
BY_QUALITY = "ix_runs_best_quality_epochs_to_target"
# Curves are long: so many are in memory at a time.
RUNS_AT_ONCE = 500
RUNS = sa.table(
    "runs",
    sa.column("id", sa.BigInteger()),
    sa.column("curve", sa.JSON()),
    sa.column("training_sha256", sa.String(64)),
)


def upgrade() -> None:
    """Apply. Each curve is read once; `rescore` finds copies among what is stored already."""
    op.add_column("runs", sa.Column("training_sha256", sa.String(64), nullable=True))
    op.add_column("submissions", sa.Column("copies", sa.JSON(), nullable=True))
    _fill()
    op.create_index(op.f(BY_TRAINING), "runs", ["training_sha256"])
    op.drop_index(op.f(BY_QUALITY), table_name="runs")


def _fill() -> None:
    connection, last = op.get_bind(), 0
    curves = sa.select(RUNS.c.id, RUNS.c.curve).order_by(RUNS.c.id).limit(RUNS_AT_ONCE)
    change = (
        sa.update(RUNS)
        .where(RUNS.c.id == sa.bindparam("run_id"))
        .values(training_sha256=sa.bindparam("training"))
    )
    while rows := connection.execute(curves.where(RUNS.c.id > last)).all():
        last = rows[-1].id
        connection.execute(
            change, [{"run_id": row.id, "training": _training(row.curve)} for row in rows]
        )


def _training(curve: Sequence[CurveRow]) -> str | None:
    return training_sha256([evaluation_of(row) for row in curve])


def downgrade() -> None:
    """Take back."""
    op.create_index(op.f(BY_QUALITY), "runs", ["best_quality", "epochs_to_target"])
    op.drop_index(op.f(BY_TRAINING), table_name="runs")
    op.drop_column("submissions", "copies")
    op.drop_column("runs", "training_sha256")

"""queues: whose turn it is in each, pauses of queues and workers, where an attempt waits."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

INDEX = "ix_attempts_waiting"
INDEXED = ("state", "sent_to", "hardware_class", "by_organiser", "submitter_id", "asked_at")
# A report is held against the runs of the same bytes, or alike, of everybody else.
RUN_INDEXES = {
    "ix_runs_log_sha256": ["log_sha256"],
    "ix_runs_best_quality_epochs_to_target": ["best_quality", "epochs_to_target"],
}
SUBMITTER = "fk_attempts_submitter_id_users"
# An attempt is asked for when its verification is; whoever is not its submitter is an organiser.
FILL = """
UPDATE attempts SET
  submitter_id = (
    SELECT coalesce(s.user_id, v.requested_by) FROM verifications v
    LEFT JOIN submissions s ON s.id = v.submission_id WHERE v.id = attempts.verification_id),
  by_organiser = (
    SELECT coalesce(s.user_id <> v.requested_by, true) FROM verifications v
    LEFT JOIN submissions s ON s.id = v.submission_id WHERE v.id = attempts.verification_id),
  asked_at = (SELECT v.created_at FROM verifications v WHERE v.id = attempts.verification_id),
  hardware_class = (
    SELECT {wanted} FROM verifications v
    JOIN submissions s ON s.id = v.submission_id WHERE v.id = attempts.verification_id)
"""
WANTED = {
    "sqlite": "json_extract(s.system, '$.hardware_class')",
    "postgresql": "s.system ->> 'hardware_class'",
}


def upgrade() -> None:
    """Apply. A server of the version before may go on: what it queues is for any worker."""
    op.create_table(
        "queues",
        sa.Column("hardware_class", sa.String(length=200), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("organisers_in_a_row", sa.Integer(), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_by", sa.String(length=100), nullable=True),
        sa.Column("paused_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("hardware_class", name=op.f("pk_queues")),
    )
    op.create_table(
        "queue_turns",
        sa.Column("hardware_class", sa.String(length=200), nullable=False),
        sa.Column("by_organiser", sa.Boolean(), nullable=False),
        sa.Column("submitter_id", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submitter_id"], ["users.id"], name=op.f("fk_queue_turns_submitter_id_users")
        ),
        sa.PrimaryKeyConstraint(
            "hardware_class", "by_organiser", "submitter_id", name=op.f("pk_queue_turns")
        ),
    )
    with op.batch_alter_table("workers") as workers:
        workers.add_column(sa.Column("held", sa.String(length=20), nullable=True))
        workers.add_column(sa.Column("held_at", sa.DateTime(timezone=True), nullable=True))
        workers.add_column(sa.Column("held_by", sa.String(length=100), nullable=True))
        workers.add_column(sa.Column("held_because", sa.Text(), nullable=True))
    with op.batch_alter_table("attempts") as attempts:
        attempts.add_column(sa.Column("hardware_class", sa.String(length=200), nullable=True))
        attempts.add_column(sa.Column("submitter_id", sa.Integer(), nullable=True))
        attempts.add_column(
            sa.Column("by_organiser", sa.Boolean(), server_default=sa.true(), nullable=False)
        )
        attempts.add_column(
            sa.Column(
                "asked_at",
                sa.DateTime(timezone=True),
                server_default=sa.func.now(),
                nullable=False,
            )
        )
        attempts.add_column(sa.Column("sent_to", sa.String(length=200), nullable=True))
    op.execute(FILL.format(wanted=WANTED[op.get_bind().dialect.name]))
    with op.batch_alter_table("attempts") as attempts:
        attempts.create_foreign_key(op.f(SUBMITTER), "users", ["submitter_id"], ["id"])
    op.create_index(op.f(INDEX), "attempts", INDEXED)
    for name, columns in RUN_INDEXES.items():
        op.create_index(op.f(name), "runs", columns)


def downgrade() -> None:
    """Take back: who waited longest is next again, and nothing is paused."""
    for name in RUN_INDEXES:
        op.drop_index(op.f(name), table_name="runs")
    op.drop_index(op.f(INDEX), table_name="attempts")
    with op.batch_alter_table("attempts") as attempts:
        attempts.drop_constraint(op.f(SUBMITTER), type_="foreignkey")
        for column in ("sent_to", "asked_at", "by_organiser", "submitter_id", "hardware_class"):
            attempts.drop_column(column)
    with op.batch_alter_table("workers") as workers:
        for column in ("held_because", "held_by", "held_at", "held"):
            workers.drop_column(column)
    op.drop_table("queue_turns")
    op.drop_table("queues")

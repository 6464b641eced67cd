"""verification kinds: without a submission, against another; who claimed; what a failure leaves."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BENCHMARK_KEY = "fk_verifications_benchmark_sha256_benchmark_definitions"
CALIBRATION_INDEX = "ix_verifications_calibration_id"


def upgrade() -> None:
    """Apply. Every verification there is replays the benchmark of its submission."""
    with op.batch_alter_table("verifications") as verifications:
        verifications.add_column(
            sa.Column("kind", sa.String(length=20), server_default="replay", nullable=False)
        )
        verifications.add_column(sa.Column("against_id", sa.String(length=20), nullable=True))
        verifications.add_column(sa.Column("calibration_id", sa.String(length=20), nullable=True))
        verifications.add_column(sa.Column("benchmark_sha256", sa.String(length=64), nullable=True))
        verifications.add_column(sa.Column("hyperparameters", sa.JSON(), nullable=True))
    op.execute(
        "UPDATE verifications SET benchmark_sha256 = (SELECT benchmark_sha256 FROM submissions"
        " WHERE submissions.id = verifications.submission_id)"
    )
    with op.batch_alter_table("verifications") as verifications:
        verifications.alter_column("submission_id", existing_type=sa.String(20), nullable=True)
        verifications.alter_column("benchmark_sha256", existing_type=sa.String(64), nullable=False)
        verifications.create_foreign_key(
            op.f("fk_verifications_against_id_submissions"), "submissions", ["against_id"], ["id"]
        )
        verifications.create_foreign_key(
            op.f(BENCHMARK_KEY), "benchmark_definitions", ["benchmark_sha256"], ["sha256"]
        )
        verifications.create_index(op.f(CALIBRATION_INDEX), ["calibration_id"])
    with op.batch_alter_table("attempts") as attempts:
        attempts.add_column(sa.Column("claimed_by", sa.Integer(), nullable=True))
        attempts.add_column(sa.Column("run_started_at", sa.DateTime(timezone=True), nullable=True))
        attempts.add_column(sa.Column("last_evaluation", sa.JSON(), nullable=True))
        attempts.add_column(sa.Column("log_tail", sa.Text(), nullable=True))
        attempts.create_foreign_key(
            op.f("fk_attempts_claimed_by_tokens"), "tokens", ["claimed_by"], ["id"]
        )
    with op.batch_alter_table("workers") as workers:
        workers.add_column(sa.Column("user_id", sa.Integer(), nullable=True))
        workers.create_foreign_key(op.f("fk_workers_user_id_users"), "users", ["user_id"], ["id"])


def downgrade() -> None:
    """Take back. The earlier schema has no place for anything but the replay of a submission."""
    with op.batch_alter_table("workers") as workers:
        workers.drop_constraint(op.f("fk_workers_user_id_users"), type_="foreignkey")
        workers.drop_column("user_id")
    with op.batch_alter_table("attempts") as attempts:
        attempts.drop_constraint(op.f("fk_attempts_claimed_by_tokens"), type_="foreignkey")
        for name in ("log_tail", "last_evaluation", "run_started_at", "claimed_by"):
            attempts.drop_column(name)
    others = "SELECT id FROM verifications WHERE kind <> 'replay'"
    their_attempts = f"SELECT id FROM attempts WHERE verification_id IN ({others})"  # noqa: S608
    op.execute(f"DELETE FROM replay_events WHERE attempt_id IN ({their_attempts})")  # noqa: S608
    op.execute(f"DELETE FROM attempts WHERE verification_id IN ({others})")  # noqa: S608
    op.execute("DELETE FROM verifications WHERE kind <> 'replay'")
    with op.batch_alter_table("verifications") as verifications:
        verifications.drop_index(op.f(CALIBRATION_INDEX))
        verifications.drop_constraint(op.f(BENCHMARK_KEY), type_="foreignkey")
        verifications.drop_constraint(
            op.f("fk_verifications_against_id_submissions"), type_="foreignkey"
        )
        verifications.alter_column("submission_id", existing_type=sa.String(20), nullable=False)
        for name in (
            "hyperparameters",
            "benchmark_sha256",
            "calibration_id",
            "against_id",
            "kind",
        ):
            verifications.drop_column(name)

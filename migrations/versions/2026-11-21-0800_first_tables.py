"""first tables."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "benchmark_definitions",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("benchmark_id", sa.String(length=100), nullable=False),
        sa.Column("version", sa.String(length=50), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_benchmark_definitions")),
    )
    op.create_index(
        op.f("ix_benchmark_definitions_benchmark_id"),
        "benchmark_definitions",
        ["benchmark_id"],
        unique=False,
    )
    op.create_table(
        "boards",
        sa.Column("benchmark_id", sa.String(length=100), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("benchmark_id", name=op.f("pk_boards")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("hardware_class", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("system", sa.JSON(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_hardware_class"), "workers", ["hardware_class"], unique=False)
    op.create_index(op.f("ix_workers_last_seen_at"), "workers", ["last_seen_at"], unique=False)
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("benchmark_id", sa.String(length=100), nullable=False),
        sa.Column("benchmark_sha256", sa.String(length=64), nullable=False),
        sa.Column("division", sa.String(length=20), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("framework", sa.Text(), nullable=False),
        sa.Column("system", sa.JSON(), nullable=False),
        sa.Column("hyperparameters", sa.JSON(), nullable=False),
        sa.Column("code_url", sa.Text(), nullable=True),
        sa.Column("notes", sa.Text(), nullable=True),
        sa.Column("claim_sha256", sa.String(length=64), nullable=False),
        sa.Column("dawnbench", sa.JSON(), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("eligible", sa.Boolean(), nullable=False),
        sa.Column("tta_seconds", sa.Double(), nullable=True),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_sha256"],
            ["benchmark_definitions.sha256"],
            name=op.f("fk_submissions_benchmark_sha256_benchmark_definitions"),
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_submissions_user_id_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint(
            "user_id", "idempotency_key", name=op.f("uq_submissions_user_id_idempotency_key")
        ),
    )
    op.create_index(
        op.f("ix_submissions_benchmark_id_division"),
        "submissions",
        ["benchmark_id", "division"],
        unique=False,
    )
    op.create_index(
        op.f("ix_submissions_submitted_at"), "submissions", ["submitted_at"], unique=False
    )
    op.create_index(op.f("ix_submissions_user_id"), "submissions", ["user_id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_tokens_token_sha256")),
    )
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=20), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(length=200), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("log_sha256", sa.String(length=64), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reached", sa.Boolean(), nullable=False),
        sa.Column("tta_seconds", sa.Double(), nullable=True),
        sa.Column("epochs_to_target", sa.Double(), nullable=True),
        sa.Column("best_quality", sa.Double(), nullable=False),
        sa.Column("ledger", sa.JSON(), nullable=True),
        sa.Column("curve", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_runs_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("submission_id", "index", name=op.f("uq_runs_submission_id_index")),
    )
    op.create_table(
        "verifications",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("submission_id", sa.String(length=20), nullable=False),
        sa.Column("requested_by", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("seal", sa.String(length=64), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("control_points", sa.JSON(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=False),
        sa.Column("limit_seconds", sa.Double(), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["requested_by"], ["users.id"], name=op.f("fk_verifications_requested_by_users")
        ),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submissions.id"],
            name=op.f("fk_verifications_submission_id_submissions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )
    op.create_index(
        op.f("ix_verifications_created_at"), "verifications", ["created_at"], unique=False
    )
    op.create_index(op.f("ix_verifications_state"), "verifications", ["state"], unique=False)
    op.create_index(
        op.f("ix_verifications_submission_id"), "verifications", ["submission_id"], unique=False
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("verification_id", sa.String(length=20), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("sends", sa.Integer(), nullable=False),
        sa.Column("send_after", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_attempts_verification_id_verifications"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_attempts_token_sha256")),
        sa.UniqueConstraint(
            "verification_id", "number", name=op.f("uq_attempts_verification_id_number")
        ),
    )
    op.create_index(
        op.f("ix_attempts_state_lease_expires_at"),
        "attempts",
        ["state", "lease_expires_at"],
        unique=False,
    )
    op.create_table(
        "replay_events",
        sa.Column("attempt_id", sa.String(length=20), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("event", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_replay_events_attempt_id_attempts")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "sequence", name=op.f("pk_replay_events")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("replay_events")
    op.drop_index(op.f("ix_attempts_state_lease_expires_at"), table_name="attempts")
    op.drop_table("attempts")
    op.drop_index(op.f("ix_verifications_submission_id"), table_name="verifications")
    op.drop_index(op.f("ix_verifications_state"), table_name="verifications")
    op.drop_index(op.f("ix_verifications_created_at"), table_name="verifications")
    op.drop_table("verifications")
    op.drop_table("runs")
    op.drop_index(op.f("ix_tokens_user_id"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_index(op.f("ix_submissions_user_id"), table_name="submissions")
    op.drop_index(op.f("ix_submissions_submitted_at"), table_name="submissions")
    op.drop_index(op.f("ix_submissions_benchmark_id_division"), table_name="submissions")
    op.drop_table("submissions")
    op.drop_index(op.f("ix_workers_last_seen_at"), table_name="workers")
    op.drop_index(op.f("ix_workers_hardware_class"), table_name="workers")
    op.drop_table("workers")
    op.drop_table("users")
    op.drop_table("boards")
    op.drop_index(op.f("ix_benchmark_definitions_benchmark_id"), table_name="benchmark_definitions")
    op.drop_table("benchmark_definitions")

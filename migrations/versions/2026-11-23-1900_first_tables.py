"""First tables: everything that Finishline stores, as it is at this revision.

A database of an earlier revision is not created but taken over (server.base.take_over).
"""

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    column,
    false,
    func,
    true,
)

revision: str = "0047"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Of each table that rows are only ever added to: its trigger, and the trigger's message.
ADDED_TO = {
    "audit_log": ("audit_log_refuses", "the audit log is only ever added to"),
    "prices": ("prices_refuse", "the price book is only ever added to"),
}


def upgrade() -> None:
    """Create every table, and the triggers that refuse changes of two."""
    connection = op.get_bind()
    tables.create_all(connection)
    refuse = _refuse_on_sqlite if connection.dialect.name == "sqlite" else _refuse_on_postgresql
    for name, (trigger, message) in ADDED_TO.items():
        refuse(name, trigger, message)


def _refuse_on_sqlite(table: str, trigger: str, message: str) -> None:
    for event in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {trigger}_{event.lower()} BEFORE {event} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )


def _refuse_on_postgresql(table: str, trigger: str, message: str) -> None:
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {trigger} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )


tables = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def table(name: str, *parts: Column[Any] | UniqueConstraint | Index) -> None:
    """Add a table."""
    Table(name, tables, *parts)


table(
    "benchmark_definitions",
    Column("sha256", String(64), primary_key=True),
    Column("benchmark_id", String(100), nullable=False, index=True),
    Column("version", String(50), nullable=False),
    Column("content", Text(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
table(
    "board_changes",
    Column("benchmark_id", String(100), primary_key=True),
    Column("version", BigInteger(), primary_key=True, autoincrement=False),
    Column("submission_id", String(20), nullable=False),
)
table(
    "boards",
    Column("benchmark_id", String(100), primary_key=True),
    Column("version", BigInteger(), nullable=False),
)
table(
    "hardware_classes",
    Column("name", String(200), primary_key=True),
    Column("accelerator", String(200)),
    Column("accelerator_count", Integer(), nullable=False),
    Column("processor", String(200), nullable=False),
    Column("processor_count", Integer(), nullable=False),
    Column("roof", Double()),
    Column("origin", String(200), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
table(
    "organisations",
    Column("id", Integer(), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
table(
    "queues",
    Column("hardware_class", String(200), primary_key=True),
    Column("turn", BigInteger(), nullable=False),
    Column("organisers_in_a_row", Integer(), nullable=False),
    Column("paused_at", DateTime(timezone=True)),
    Column("paused_by", String(100)),
    Column("paused_because", Text()),
)
table(
    "signing_keys",
    Column("id", String(16), primary_key=True),
    Column("public_key", String(64), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
table(
    "pools",
    Column("id", String(20), primary_key=True),
    Column("benchmark_id", String(100), nullable=False),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("division", String(20), nullable=False),
    Column("hardware_class", String(200), nullable=False),
    Column("configuration_sha256", String(64), nullable=False),
    Column("settings", JSON(), nullable=False),
    Column("opened_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True)),
    Column("closed_because", Text()),
    Column("measured_seconds", Double()),
    Column("low_seconds", Double()),
    Column("high_seconds", Double()),
    Column("runs", Integer(), nullable=False),
    Column("state", String(20), nullable=False),
    Column("measured_at", DateTime(timezone=True)),
    Column("owners", Integer(), nullable=False),
    Column("by_organisers", Boolean(), nullable=False),
    Column("attested_at", DateTime(timezone=True)),
    Index(None, "benchmark_id", "hardware_class"),
    Index(None, "configuration_sha256", "closed_at"),
)
table(
    "users",
    Column("id", Integer(), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("role", String(20), nullable=False, server_default="submitter"),
    Column("organisation_id", ForeignKey("organisations.id"), index=True),
    Column("email", String(254)),
    Column("disabled_at", DateTime(timezone=True)),
)
table(
    "audit_log",
    Column("id", Integer(), primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("actor_id", ForeignKey("users.id")),
    Column("actor", String(100), nullable=False),
    Column("action", String(50), nullable=False),
    Column("subject_kind", String(50), nullable=False),
    Column("subject_id", String(200), nullable=False),
    Column("reason", Text()),
    Column("before", JSON()),
    Column("after", JSON()),
    Column("previous_sha256", String(64), nullable=False),
    Column("sha256", String(64), nullable=False),
)
table(
    "benchmark_phases",
    Column("id", Integer(), primary_key=True),
    Column("benchmark_id", String(100), nullable=False, index=True),
    Column("opens_at", DateTime(timezone=True)),
    Column("freezes_at", DateTime(timezone=True)),
    Column("closes_at", DateTime(timezone=True)),
    Column("embargo_until", DateTime(timezone=True)),
    Column("frozen_sha256", ForeignKey("benchmark_definitions.sha256")),
    Column("reason", Text(), nullable=False),
    Column("set_by", ForeignKey("users.id"), nullable=False),
    Column("set_at", DateTime(timezone=True), nullable=False),
)
table(
    "calibrations",
    Column("id", String(20), primary_key=True),
    Column("benchmark_id", String(100), nullable=False),
    Column(
        "benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False, index=True
    ),
    Column("version", Integer(), nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", Text()),
    Column("requested_by", ForeignKey("users.id"), nullable=False),
    Column("batch_sizes", JSON(), nullable=False),
    Column("runs", Integer(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("adopted_at", DateTime(timezone=True)),
    Column("adopted_by", ForeignKey("users.id")),
    Column("adopted_because", Text()),
    UniqueConstraint("benchmark_id", "version"),
)
table(
    "mail_subscriptions",
    Column("id", String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("address", String(254), nullable=False, index=True),
    Column("kinds", JSON(), nullable=False),
    Column("scope", String(20), nullable=False),
    Column("benchmark_id", String(100)),
    Column("secret", String(100), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("verified_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
)
table(
    "notice_events",
    Column("id", String(24), primary_key=True),
    Column("kind", String(40), nullable=False),
    Column("user_id", ForeignKey("users.id")),
    Column("benchmark_id", String(100)),
    Column("content", JSON(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("spread_at", DateTime(timezone=True)),
    Index(None, "spread_at", "created_at"),
)
table(
    "prices",
    Column("id", Integer(), primary_key=True),
    Column("provider", String(100), nullable=False),
    Column("instance", String(200), nullable=False),
    Column("region", String(100), nullable=False),
    Column("pricing", String(20), nullable=False),
    Column("usd_per_hour", Double(), nullable=False),
    Column("effective_on", Date(), nullable=False),
    Column("source_url", Text(), nullable=False),
    Column("note", Text()),
    Column("supersedes", ForeignKey("prices.id"), unique=True),
    Column("added_by", ForeignKey("users.id"), nullable=False),
    Column("added_at", DateTime(timezone=True), nullable=False),
    Index(None, "provider", "instance", "region"),
)
table(
    "queue_turns",
    Column("hardware_class", String(200), primary_key=True),
    Column("by_organiser", Boolean(), primary_key=True),
    Column("submitter_id", ForeignKey("users.id"), primary_key=True),
    Column("turn", BigInteger(), nullable=False),
)
table(
    "quotas",
    Column("subject_kind", String(20), primary_key=True),
    Column("subject", String(100), primary_key=True),
    Column("measure", String(40), primary_key=True),
    Column("amount", BigInteger()),
    Column("reason", Text(), nullable=False),
    Column("set_by", ForeignKey("users.id"), nullable=False),
    Column("set_at", DateTime(timezone=True), nullable=False),
)
table(
    "submissions",
    Column("id", String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("benchmark_id", String(100), nullable=False),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("division", String(20), nullable=False),
    Column("model", Text(), nullable=False),
    Column("framework", Text(), nullable=False),
    Column("system", JSON(), nullable=False),
    Column("hyperparameters", JSON(), nullable=False),
    Column("code_url", Text()),
    Column("notes", Text()),
    Column("claim_sha256", String(64), nullable=False),
    Column("dawnbench", JSON()),
    Column("status", String(20), nullable=False),
    Column("eligible", Boolean(), nullable=False),
    Column("tta_seconds", Double()),
    Column("cost_usd", Double()),
    Column("latency_ms", Double()),
    Column("cost_usd_per_10000", Double()),
    Column("measured_latency_ms", Double()),
    Column("result", JSON(), nullable=False),
    Column("idempotency_key", String(200)),
    Column("request_sha256", String(64), nullable=False),
    Column("submitted_at", DateTime(timezone=True), nullable=False, index=True),
    Column("kind", String(20), nullable=False, server_default="train"),
    Column("precision", String(10)),
    Column("precision_measured", String(10)),
    Column("trained_with", String(10), nullable=False, server_default="own"),
    Column("tuning", JSON()),
    Column("ticket_id", String(20)),
    Column("witnessed_by", String(100)),
    Column("revealed_at", DateTime(timezone=True), index=True),
    Column("energy_joules", Double()),
    Column("embargoed", Boolean(), nullable=False, server_default=false()),
    Column("withdrawn_at", DateTime(timezone=True)),
    Column("withdrawn_by", String(100)),
    Column("withdrawn_because", Text()),
    Column("evidence", String(12), nullable=False, server_default="claimed"),
    Column("check_word", String(16)),
    Column("pool_id", ForeignKey("pools.id"), index=True),
    UniqueConstraint("user_id", "idempotency_key"),
    Index(None, "benchmark_id", "submitted_at"),
    Index(
        None,
        "embargoed",
        sqlite_where=column("embargoed", Boolean()).is_(true()),
        postgresql_where=column("embargoed", Boolean()).is_(true()),
    ),
    Index(
        "ix_submissions_handed_in",
        *("benchmark_id", "kind", "evidence", "division", "user_id"),
        *("submitted_at", "id", "embargoed"),
    ),
    Index(
        "ix_submissions_standing",
        *("benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"),
        *("withdrawn_at", "embargoed", "submitted_at", "id"),
        *("latency_ms", "measured_latency_ms", "cost_usd_per_10000", "evidence", "check_word"),
        *("ticket_id", "pool_id"),
    ),
    Index(None, "user_id", "submitted_at"),
)
table(
    "tickets",
    Column("id", String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("benchmark_id", String(100), nullable=False),
    Column("benchmark_sha256", String(64), nullable=False),
    Column("division", String(20), nullable=False),
    Column("settings", JSON(), nullable=False),
    Column("hardware_class", String(100), nullable=False),
    Column("seeds", JSON(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("submission_id", String(20)),
    Index(None, "user_id", "benchmark_id"),
)
table(
    "webhooks",
    Column("id", String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("url", Text(), nullable=False),
    Column("kinds", JSON(), nullable=False),
    Column("scope", String(20), nullable=False),
    Column("benchmark_id", String(100)),
    Column("secret", String(100), nullable=False),
    Column("previous_secret", String(100)),
    Column("previous_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("failing_since", DateTime(timezone=True)),
    Column("disabled_at", DateTime(timezone=True)),
    Column("disabled_because", Text()),
)
table(
    "deliveries",
    Column("id", Integer(), primary_key=True),
    Column("event_id", ForeignKey("notice_events.id"), nullable=False),
    Column("webhook_id", ForeignKey("webhooks.id"), index=True),
    Column("mail_id", ForeignKey("mail_subscriptions.id"), index=True),
    Column("state", String(20), nullable=False),
    Column("due_at", DateTime(timezone=True), nullable=False),
    Column("claims", Integer(), nullable=False),
    Column("failures", Integer(), nullable=False),
    Column("tries", JSON(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("ended_at", DateTime(timezone=True)),
    UniqueConstraint("event_id", "mail_id"),
    UniqueConstraint("event_id", "webhook_id"),
    Index(None, "state", "due_at"),
)
table(
    "published_results",
    Column("submission_id", ForeignKey("submissions.id"), primary_key=True),
    Column("organisation", Text()),
    Column("published_on", Date()),
    Column("source", JSON()),
)
table(
    "runs",
    Column("id", Integer(), primary_key=True),
    Column("submission_id", ForeignKey("submissions.id"), nullable=False),
    Column("index", Integer(), nullable=False),
    Column("file", String(200), nullable=False),
    Column("seed", BigInteger()),
    Column("log_sha256", String(64), nullable=False, index=True),
    Column("log_bytes", BigInteger(), nullable=False),
    Column("reached", Boolean(), nullable=False),
    Column("tta_seconds", Double()),
    Column("epochs_to_target", Double()),
    Column("best_quality", Double()),
    Column("batch_size", BigInteger()),
    Column("convergence", Double()),
    Column("ledger", JSON()),
    Column("settings", JSON()),
    Column("curve", JSON(), nullable=False),
    UniqueConstraint("submission_id", "index"),
)
table(
    "tokens",
    Column("id", Integer(), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("role", String(20), nullable=False),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("label", String(100)),
    Column("scopes", JSON(), nullable=False, server_default="[]"),
    Column("last_used_at", DateTime(timezone=True)),
    Column("rotated_from", ForeignKey("tokens.id")),
    Column("made_with", ForeignKey("tokens.id")),
    Column("submission_id", ForeignKey("submissions.id")),
)
table(
    "workers",
    Column("name", String(200), primary_key=True),
    Column("user_id", ForeignKey("users.id")),
    Column("hardware_class", String(200), nullable=False, index=True),
    Column("state", String(20), nullable=False),
    Column("system", JSON(), nullable=False),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, index=True),
    Column("drift", Text()),
    Column("drifted_at", DateTime(timezone=True)),
    Column("baseline_since", DateTime(timezone=True)),
    Column("held", String(20)),
    Column("held_at", DateTime(timezone=True)),
    Column("held_by", String(100)),
    Column("held_because", Text()),
    Column("confirmed_at", DateTime(timezone=True)),
    Column("confirmed_by", ForeignKey("users.id")),
    Column("witness_for", ForeignKey("submissions.id")),
)
table(
    "console_sessions",
    Column("id_sha256", String(64), primary_key=True),
    Column("token_id", ForeignKey("tokens.id"), nullable=False, index=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False),
    Column("notices", JSON(), nullable=False),
)
table(
    "verifications",
    Column("id", String(20), primary_key=True),
    Column("kind", String(20), nullable=False, server_default="replay"),
    Column("submission_id", ForeignKey("submissions.id"), index=True),
    Column("against_id", ForeignKey("submissions.id")),
    Column("calibration_id", ForeignKey("calibrations.id"), index=True),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("requested_by", ForeignKey("users.id"), nullable=False),
    Column("reason", Text()),
    Column("state", String(20), nullable=False, index=True),
    Column("seal", String(64), nullable=False),
    Column("nonce", String(64), nullable=False),
    Column("runs", Integer(), nullable=False, server_default="0"),
    Column("control_points", JSON(), nullable=False),
    Column("max_attempts", Integer(), nullable=False),
    Column("lease_seconds", Double(), nullable=False),
    Column("limit_seconds", Double(), nullable=False),
    Column("outcome", String(20)),
    Column("reasons", JSON(), nullable=False),
    Column("report", JSON()),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("ended_at", DateTime(timezone=True)),
    Column("cancelled_at", DateTime(timezone=True)),
    Column("pool_id", ForeignKey("pools.id"), index=True),
    Column("own_runs", Integer(), nullable=False, server_default="0"),
    Column("fresh", Boolean(), nullable=False, server_default=false()),
    Column("checks_id", ForeignKey("verifications.id"), index=True),
    Column("witness_token_id", ForeignKey("tokens.id")),
)
table(
    "worker_probes",
    Column("id", Integer(), primary_key=True),
    Column("worker", ForeignKey("workers.name"), nullable=False),
    Column("moment", String(20), nullable=False),
    Column("measured_at", DateTime(timezone=True), nullable=False),
    Column("attempt_id", String(20)),
    Column("gflops", Double()),
    Column("configuration", String(300)),
    Column("baseline_gflops", Double()),
    Column("ratio", Double()),
    Column("figures", JSON(), nullable=False),
    Column("host", JSON(), nullable=False),
    Index(None, "worker", "configuration"),
)
table(
    "attempts",
    Column("id", String(20), primary_key=True),
    Column("verification_id", ForeignKey("verifications.id"), nullable=False),
    Column("number", Integer(), nullable=False),
    Column("state", String(20), nullable=False),
    Column("fence", Integer(), nullable=False),
    Column("token_sha256", String(64), unique=True),
    Column("worker", String(200)),
    Column("claimed_by", ForeignKey("tokens.id")),
    Column("sends", Integer(), nullable=False),
    Column("send_after", DateTime(timezone=True), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("started_at", DateTime(timezone=True)),
    Column("lease_expires_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("failure", JSON()),
    Column("run_started_at", DateTime(timezone=True)),
    Column("last_evaluation", JSON()),
    Column("log_tail", Text()),
    Column("accelerators", Integer()),
    Column("clock_slack_seconds", Double()),
    Column("hardware_class", String(200)),
    Column("submitter_id", ForeignKey("users.id")),
    Column("by_organiser", Boolean(), nullable=False, server_default=true()),
    Column("asked_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("sent_to", String(200)),
    UniqueConstraint("verification_id", "number"),
    Index(None, "state", "lease_expires_at"),
    Index(
        "ix_attempts_waiting",
        *("state", "sent_to", "hardware_class", "by_organiser", "submitter_id", "asked_at"),
    ),
)
table(
    "calibration_runs",
    Column("calibration_id", ForeignKey("calibrations.id"), primary_key=True),
    Column("batch_size", Integer(), primary_key=True, autoincrement=False),
    Column("seed", BigInteger(), primary_key=True, autoincrement=False),
    Column("verification_id", ForeignKey("verifications.id"), nullable=False),
    Column("status", String(20), nullable=False),
    Column("quality", JSON(), nullable=False),
    Column("seconds", JSON(), nullable=False),
    Column("system", JSON(), nullable=False),
)
table(
    "charges",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("gpu_seconds_reserved", Double(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index(None, "user_id", "created_at"),
)
table(
    "decisions",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("decision", String(10), nullable=False),
    Column("decided_by", ForeignKey("users.id")),
    Column("reason", Text(), nullable=False),
    Column("decided_at", DateTime(timezone=True), nullable=False),
)
table(
    "evidence",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("submission", JSON(), nullable=False),
    Column("code", JSON(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
table(
    "job_trainings",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("index", Integer(), primary_key=True, autoincrement=False),
    Column("package", String(100), nullable=False),
    Column("settings", JSON(), nullable=False),
    Column("seed", BigInteger(), nullable=False),
    Column("data_nonce", String(64)),
    Column("stop_at", String(10), nullable=False),
    Column("measure", JSON(), nullable=False),
)
table(
    "pool_runs",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("index", Integer(), primary_key=True, autoincrement=False),
    Column("pool_id", ForeignKey("pools.id"), nullable=False, index=True),
    Column("attempt_id", String(20)),
    Column("seed", BigInteger(), nullable=False),
    Column("seconds", Double()),
    Column("epochs", Double()),
    Column("fresh", Boolean(), nullable=False),
    Column("counted", Boolean(), nullable=False),
)
table(
    "replay_openings",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("run", Integer(), primary_key=True, autoincrement=False),
    Column("benchmark_id", String(100), nullable=False),
    Column("seed", BigInteger(), nullable=False),
    Column("opening", String(64), nullable=False, index=True),
)
table(
    "replay_events",
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("sequence", Integer(), primary_key=True),
    Column("event", JSON(), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

"""Create everything that Finishline stores. What is hashed is hashed in its RFC 8785 form."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column, ForeignKey, Index, UniqueConstraint

from server.base.places import code_version
from server.base.schema import newest_revision
from server.base.settings import get_settings

revision: str = newest_revision()
down_revision: str | None = None

# Tables that only ever get new rows: the trigger that refuses changes, and its message.
ADDED_TO = {
    "audit_log": ("audit_log_refuses", "the audit log is only ever added to"),
    "prices": ("prices_refuse", "the price book is only ever added to"),
}


def upgrade() -> None:
    """Create every table, and the triggers that refuse changes of two."""
    connection = op.get_bind()
    tables.create_all(connection, checkfirst=False)
    refuse = _refuse_on_sqlite if connection.dialect.name == "sqlite" else _refuse_on_postgresql
    for name, (trigger, message) in ADDED_TO.items():
        refuse(name, trigger, message)
    commit = code_version(get_settings().code_commit).commit  # For who reads it later.
    op.add_column("alembic_version", Column("code_commit", sa.String(64), server_default=commit))


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


tables = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def table(name: str, *parts: Column[Any] | UniqueConstraint | Index) -> None:
    """Add a table."""
    sa.Table(name, tables, *parts)


# `make migration` writes the rest from the models.
table(
    "board_changes",
    Column("benchmark_id", sa.String(100), primary_key=True),
    Column("version", sa.BigInteger(), primary_key=True, autoincrement=False),
    Column("submission_id", sa.String(20), nullable=False),
)
table(
    "boards",
    Column("benchmark_id", sa.String(100), primary_key=True),
    Column("version", sa.BigInteger(), nullable=False),
)
table(
    "hardware_classes",
    Column("name", sa.String(200), primary_key=True),
    Column("accelerator", sa.String(200)),
    Column("accelerator_count", sa.Integer(), nullable=False),
    Column("processor", sa.String(200), nullable=False),
    Column("processor_count", sa.Integer(), nullable=False),
    Column("roof", sa.Double()),
    Column("origin", sa.String(200), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
table(
    "organisations",
    Column("id", sa.Integer(), primary_key=True),
    Column("name", sa.String(100), nullable=False, unique=True),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
table(
    "pauses",
    Column("what", sa.String(10), primary_key=True),
    Column("paused_at", sa.DateTime(timezone=True), nullable=False),
    Column("paused_by", sa.String(100), nullable=False),
    Column("paused_because", sa.Text(), nullable=False),
)
table(
    "signing_keys",
    Column("id", sa.String(16), primary_key=True),
    Column("public_key", sa.String(64), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
table(
    "users",
    Column("id", sa.Integer(), primary_key=True),
    Column("name", sa.String(100), nullable=False, unique=True),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("role", sa.String(20), nullable=False),
    Column("organisation_id", ForeignKey("organisations.id"), index=True),
    Column("email", sa.String(254)),
    Column("disabled_at", sa.DateTime(timezone=True)),
    Column("known_at", sa.DateTime(timezone=True)),
    Column("display_name", sa.String(100)),
    Column("quota", sa.JSON()),
    Column("issuer", sa.String(255)),
    Column("subject", sa.String(255)),
    Column("session_number", sa.Integer(), nullable=False),
    UniqueConstraint("issuer", "subject"),
)
table(
    "audit_log",
    Column("id", sa.Integer(), primary_key=True, autoincrement=False),
    Column("at", sa.DateTime(timezone=True), nullable=False),
    Column("actor_id", ForeignKey("users.id")),
    Column("actor", sa.String(100), nullable=False),
    Column("action", sa.String(50), nullable=False),
    Column("subject_kind", sa.String(50), nullable=False),
    Column("subject_id", sa.String(200), nullable=False),
    Column("reason", sa.Text()),
    Column("before", sa.JSON()),
    Column("after", sa.JSON()),
    Column("previous_sha256", sa.String(64), nullable=False),
    Column("sha256", sa.String(64), nullable=False),
)
table(
    "benchmark_definitions",
    Column("sha256", sa.String(64), primary_key=True),
    Column("benchmark_id", sa.String(100), nullable=False, index=True),
    Column("version", sa.String(50), nullable=False),
    Column("content", sa.Text(), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("added_by", ForeignKey("users.id")),
    Column("in_force_at", sa.DateTime(timezone=True)),
)
table(
    "benchmark_phases",
    Column("id", sa.Integer(), primary_key=True),
    Column("benchmark_id", sa.String(100), nullable=False, index=True),
    Column("opens_at", sa.DateTime(timezone=True)),
    Column("freezes_at", sa.DateTime(timezone=True)),
    Column("closes_at", sa.DateTime(timezone=True)),
    Column("embargo_until", sa.DateTime(timezone=True)),
    Column("reason", sa.Text(), nullable=False),
    Column("set_by", ForeignKey("users.id"), nullable=False),
    Column("set_at", sa.DateTime(timezone=True), nullable=False),
)
table(
    "prices",
    Column("id", sa.Integer(), primary_key=True),
    Column("provider", sa.String(100), nullable=False),
    Column("instance", sa.String(200), nullable=False),
    Column("region", sa.String(100), nullable=False),
    Column("pricing", sa.String(20), nullable=False),
    Column("usd_per_hour", sa.Double(), nullable=False),
    Column("effective_on", sa.Date(), nullable=False),
    Column("source_url", sa.Text(), nullable=False),
    Column("note", sa.Text()),
    Column("supersedes", ForeignKey("prices.id"), unique=True),
    Column("hardware_class", sa.String(100)),
    Column("added_by", ForeignKey("users.id"), nullable=False),
    Column("added_at", sa.DateTime(timezone=True), nullable=False),
    Index(None, "provider", "instance", "region"),
)
table(
    "receivers",
    Column("id", sa.String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("channel", sa.String(10), nullable=False),
    Column("address", sa.Text(), nullable=False),
    Column("mailbox", sa.String(254), index=True),
    Column("kinds", sa.JSON(), nullable=False),
    Column("scope", sa.String(20), nullable=False),
    Column("benchmark_id", sa.String(100)),
    Column("secret", sa.String(100), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("confirmed_at", sa.DateTime(timezone=True)),
    Column("failing_since", sa.DateTime(timezone=True)),
    Column("disabled_at", sa.DateTime(timezone=True)),
    Column("disabled_because", sa.Text()),
)
table(
    "tokens",
    Column("id", sa.Integer(), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("role", sa.String(20), nullable=False),
    Column("token_sha256", sa.String(64), nullable=False, unique=True),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("expires_at", sa.DateTime(timezone=True)),
    Column("revoked_at", sa.DateTime(timezone=True)),
    Column("label", sa.String(100)),
    Column("last_used_at", sa.DateTime(timezone=True)),
    Column("made_with", ForeignKey("tokens.id")),
)
table(
    "workers",
    Column("name", sa.String(200), primary_key=True),
    Column("user_id", ForeignKey("users.id")),
    Column("hardware_class", sa.String(200), nullable=False, index=True),
    Column("state", sa.String(20), nullable=False),
    Column("system", sa.JSON(), nullable=False),
    Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
    Column("last_seen_at", sa.DateTime(timezone=True), nullable=False, index=True),
    Column("drift", sa.Text()),
    Column("drifted_at", sa.DateTime(timezone=True)),
    Column("baseline_since", sa.DateTime(timezone=True)),
    Column("held", sa.String(20)),
    Column("held_at", sa.DateTime(timezone=True)),
    Column("held_by", sa.String(100)),
    Column("held_because", sa.Text()),
    Column("confirmed_at", sa.DateTime(timezone=True)),
    Column("confirmed_by", ForeignKey("users.id")),
    Column("box", sa.JSON()),
    Column("polls", sa.Boolean(), nullable=False),
)
table(
    "calibrations",
    Column("id", sa.String(20), primary_key=True),
    Column("benchmark_id", sa.String(100), nullable=False),
    Column(
        "benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False, index=True
    ),
    Column("version", sa.Integer(), nullable=False),
    Column("state", sa.String(20), nullable=False),
    Column("reason", sa.Text()),
    Column("requested_by", ForeignKey("users.id"), nullable=False),
    Column("batch_sizes", sa.JSON(), nullable=False),
    Column("runs", sa.Integer(), nullable=False),
    Column("precision", sa.String(10)),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("ended_at", sa.DateTime(timezone=True)),
    Column("adopted_at", sa.DateTime(timezone=True)),
    Column("adopted_by", ForeignKey("users.id")),
    Column("adopted_because", sa.Text()),
    UniqueConstraint("benchmark_id", "version"),
)
table(
    "invitations",
    Column("id", sa.Integer(), primary_key=True),
    Column("code_sha256", sa.String(64), nullable=False),
    Column("role", sa.String(20), nullable=False),
    Column("uses", sa.Integer(), nullable=False),
    Column("uses_allowed", sa.Integer(), nullable=False),
    Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    Column("mail_domain", sa.String(253)),
    Column("organisation_id", ForeignKey("organisations.id")),
    Column("name", sa.String(100)),
    Column("known", sa.Boolean(), nullable=False),
    Column("made_by", ForeignKey("users.id"), nullable=False),
    Column("made_with", ForeignKey("tokens.id"), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("revoked_at", sa.DateTime(timezone=True)),
)
table(
    "outbox",
    Column("id", sa.Integer(), primary_key=True),
    Column("message_id", sa.String(24), nullable=False),
    Column("receiver_id", ForeignKey("receivers.id"), index=True),
    Column("kind", sa.String(40), nullable=False),
    Column("content", sa.JSON(), nullable=False),
    Column("state", sa.String(20), nullable=False),
    Column("due_at", sa.DateTime(timezone=True), nullable=False),
    Column("failures", sa.Integer(), nullable=False),
    Column("tries", sa.JSON(), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
    Column("ended_at", sa.DateTime(timezone=True)),
    Index(None, "state", "due_at"),
)
table(
    "pools",
    Column("id", sa.String(20), primary_key=True),
    Column("benchmark_id", sa.String(100), nullable=False),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("division", sa.String(20), nullable=False),
    Column("hardware_class", sa.String(200), nullable=False),
    Column("configuration_sha256", sa.String(64), nullable=False),
    Column("settings", sa.JSON(), nullable=False),
    Column("opened_at", sa.DateTime(timezone=True), nullable=False),
    Column("closed_at", sa.DateTime(timezone=True)),
    Column("measured_seconds", sa.Double()),
    Column("low_seconds", sa.Double()),
    Column("high_seconds", sa.Double()),
    Column("runs", sa.Integer(), nullable=False),
    Column("measured_at", sa.DateTime(timezone=True)),
    Column("is_busy", sa.Boolean(), nullable=False),
    Index(None, "benchmark_id", "hardware_class"),
    Index(None, "configuration_sha256", "closed_at"),
)
table(
    "worker_probes",
    Column("id", sa.Integer(), primary_key=True),
    Column("worker", ForeignKey("workers.name"), nullable=False),
    Column("moment", sa.String(20), nullable=False),
    Column("measured_at", sa.DateTime(timezone=True), nullable=False),
    Column("attempt_id", sa.String(20)),
    Column("gflops", sa.Double()),
    Column("configuration", sa.String(300)),
    Column("baseline_gflops", sa.Double()),
    Column("ratio", sa.Double()),
    Column("figures", sa.JSON(), nullable=False),
    Column("host", sa.JSON(), nullable=False),
    Index(None, "worker", "configuration"),
)
table(
    "submissions",
    Column("id", sa.String(20), primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("benchmark_id", sa.String(100), nullable=False),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("division", sa.String(20), nullable=False),
    Column("model", sa.Text(), nullable=False),
    Column("framework", sa.Text(), nullable=False),
    Column("system", sa.JSON(), nullable=False),
    Column("hyperparameters", sa.JSON(), nullable=False),
    Column("code_url", sa.Text()),
    Column("notes", sa.Text()),
    Column("claim_sha256", sa.String(64), nullable=False),
    Column("dawnbench", sa.JSON()),
    Column("status", sa.String(20), nullable=False),
    Column("eligible", sa.Boolean(), nullable=False),
    Column("tta_seconds", sa.Double()),
    Column("cost_usd", sa.Double()),
    Column("latency_ms", sa.Double()),
    Column("cost_usd_per_10000", sa.Double()),
    Column("measured_latency_ms", sa.Double()),
    Column("result", sa.JSON(), nullable=False),
    Column("idempotency_key", sa.String(200)),
    Column("request_sha256", sa.String(64), nullable=False),
    Column("submitted_at", sa.DateTime(timezone=True), nullable=False, index=True),
    Column("kind", sa.String(20), nullable=False),
    Column("precision", sa.String(10)),
    Column("precision_measured", sa.String(10)),
    Column("trained_with", sa.String(10), nullable=False),
    Column("tuning", sa.JSON()),
    Column("claimed_model", sa.Text()),
    Column("claimed_framework", sa.Text()),
    Column("energy_joules", sa.Double()),
    Column("embargoed", sa.Boolean(), nullable=False),
    Column("withdrawn_at", sa.DateTime(timezone=True)),
    Column("withdrawn_by", sa.String(100)),
    Column("withdrawn_because", sa.Text()),
    Column("retirement", sa.JSON()),
    Column("waivers", sa.JSON()),
    Column("evidence", sa.String(12), nullable=False),
    Column("check_word", sa.String(16)),
    Column("pool_id", ForeignKey("pools.id"), index=True),
    Column("configuration_sha256", sa.String(64), index=True),
    Column("duplicate_of", sa.String(20), index=True),
    UniqueConstraint("user_id", "idempotency_key"),
    Index(
        "ix_submissions_standing",
        *["benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"],
        *["withdrawn_at", "embargoed", "submitted_at", "id", "latency_ms", "measured_latency_ms"],
        *["cost_usd_per_10000", "evidence", "check_word", "pool_id", "duplicate_of", "user_id"],
    ),
    Index(None, "benchmark_id", "submitted_at"),
    Index(
        None,
        "embargoed",
        sqlite_where=sa.text("embargoed IS 1"),
        postgresql_where=sa.text("embargoed IS true"),
    ),
    Index(None, "user_id", "submitted_at"),
)
table(
    "published_results",
    Column("submission_id", ForeignKey("submissions.id"), primary_key=True),
    Column("organisation", sa.Text()),
    Column("published_on", sa.Date()),
    Column("source", sa.JSON()),
)
table(
    "runs",
    Column("id", sa.Integer(), primary_key=True),
    Column("submission_id", ForeignKey("submissions.id"), nullable=False),
    Column("index", sa.Integer(), nullable=False),
    Column("file", sa.String(200), nullable=False),
    Column("seed", sa.BigInteger()),
    Column("log_sha256", sa.String(64), nullable=False, index=True),
    Column("log_bytes", sa.BigInteger(), nullable=False),
    Column("reached", sa.Boolean(), nullable=False),
    Column("tta_seconds", sa.Double()),
    Column("epochs_to_target", sa.Double()),
    Column("best_quality", sa.Double()),
    Column("batch_size", sa.BigInteger()),
    Column("convergence", sa.Double()),
    Column("ledger", sa.JSON()),
    Column("settings", sa.JSON()),
    Column("curve", sa.JSON(), nullable=False),
    UniqueConstraint("submission_id", "index"),
)
table(
    "trainings",
    Column("submission_id", ForeignKey("submissions.id"), primary_key=True),
    Column("package_sha256", sa.String(64), nullable=False),
    Column("hardware_class", sa.String(200), nullable=False),
    Column("program_sha256", sa.String(64), nullable=False, index=True),
    Column("environment", sa.String(64), nullable=False),
    Column("environment_sha256", sa.String(64), nullable=False),
    Column("manifest", sa.JSON(), nullable=False),
    Column("files", sa.JSON(), nullable=False),
    Column("size_bytes", sa.BigInteger(), nullable=False),
    Column("compressed_bytes", sa.BigInteger(), nullable=False),
    Column("determinism", sa.String(10)),
    Column("published_at", sa.DateTime(timezone=True)),
    UniqueConstraint("package_sha256", "hardware_class"),
)
table(
    "verifications",
    Column("id", sa.String(20), primary_key=True),
    Column("kind", sa.String(20), nullable=False),
    Column("submission_id", ForeignKey("submissions.id"), index=True),
    Column("against_id", ForeignKey("submissions.id")),
    Column("calibration_id", ForeignKey("calibrations.id"), index=True),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("requested_by", ForeignKey("users.id"), nullable=False),
    Column("reason", sa.Text()),
    Column("state", sa.String(20), nullable=False, index=True),
    Column("seal", sa.String(64), nullable=False),
    Column("nonce", sa.String(64), nullable=False),
    Column("runs", sa.Integer(), nullable=False),
    Column("control_points", sa.JSON(), nullable=False),
    Column("max_attempts", sa.Integer(), nullable=False),
    Column("lease_seconds", sa.Double(), nullable=False),
    Column("limit_seconds", sa.Double(), nullable=False),
    Column("outcome", sa.String(20)),
    Column("reasons", sa.JSON(), nullable=False),
    Column("report", sa.JSON()),
    Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
    Column("ended_at", sa.DateTime(timezone=True)),
    Column("pool_id", ForeignKey("pools.id"), index=True),
    Column("checks_id", ForeignKey("verifications.id"), index=True),
    Column("continues_id", ForeignKey("verifications.id"), unique=True),
    Column("gpu_seconds_reserved", sa.Double()),
    Column("decision", sa.String(10)),
    Column("decided_by", ForeignKey("users.id")),
    Column("decided_at", sa.DateTime(timezone=True)),
    Column("decision_reason", sa.Text()),
    Index(None, "requested_by", "created_at"),
)
table(
    "attempts",
    Column("id", sa.String(20), primary_key=True),
    Column("verification_id", ForeignKey("verifications.id"), nullable=False),
    Column("number", sa.Integer(), nullable=False),
    Column("state", sa.String(20), nullable=False),
    Column("fence", sa.Integer(), nullable=False),
    Column("token_sha256", sa.String(64), unique=True),
    Column("worker", sa.String(200)),
    Column("claimed_by", ForeignKey("tokens.id")),
    Column("send_after", sa.DateTime(timezone=True), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
    Column("started_at", sa.DateTime(timezone=True)),
    Column("lease_expires_at", sa.DateTime(timezone=True)),
    Column("ended_at", sa.DateTime(timezone=True)),
    Column("failure", sa.JSON()),
    Column("run_started_at", sa.DateTime(timezone=True)),
    Column("last_evaluation", sa.JSON()),
    Column("log_tail", sa.Text()),
    Column("accelerators", sa.Integer()),
    Column("clock_slack_seconds", sa.Double()),
    Column("hardware_class", sa.String(200)),
    Column("submitter_id", ForeignKey("users.id"), nullable=False),
    Column("by_organiser", sa.Boolean(), nullable=False),
    Column("asked_at", sa.DateTime(timezone=True), nullable=False),
    Column("sent_to", sa.String(200)),
    Column("is_apart", sa.Boolean(), nullable=False),
    UniqueConstraint("verification_id", "number"),
    Index(None, "sent_to", "send_after"),
    Index(None, "state", "asked_at"),
    Index(None, "state", "lease_expires_at"),
)
table(
    "calibration_runs",
    Column("calibration_id", ForeignKey("calibrations.id"), primary_key=True),
    Column("batch_size", sa.Integer(), primary_key=True, autoincrement=False),
    Column("seed", sa.BigInteger(), primary_key=True, autoincrement=False),
    Column("verification_id", ForeignKey("verifications.id"), nullable=False),
    Column("status", sa.String(20), nullable=False),
    Column("quality", sa.JSON(), nullable=False),
    Column("seconds", sa.JSON(), nullable=False),
    Column("system", sa.JSON(), nullable=False),
)
table(
    "evidence",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("benchmark_sha256", ForeignKey("benchmark_definitions.sha256"), nullable=False),
    Column("submission", sa.JSON(), nullable=False),
    Column("code", sa.JSON(), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
table(
    "job_trainings",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("index", sa.Integer(), primary_key=True, autoincrement=False),
    Column("package", sa.String(100), nullable=False),
    Column("settings", sa.JSON(), nullable=False),
    Column("seed", sa.BigInteger(), nullable=False),
    Column("data_nonce", sa.String(64)),
    Column("stop_at", sa.String(10), nullable=False),
    Column("measure", sa.JSON(), nullable=False),
    Column("precision", sa.String(10)),
    Column("opening", sa.String(64), index=True),
)
table(
    "pool_runs",
    Column("verification_id", ForeignKey("verifications.id"), primary_key=True),
    Column("index", sa.Integer(), primary_key=True, autoincrement=False),
    Column("pool_id", ForeignKey("pools.id"), nullable=False, index=True),
    Column("attempt_id", sa.String(20)),
    Column("seed", sa.BigInteger(), nullable=False),
    Column("seconds", sa.Double()),
    Column("epochs", sa.Double()),
    Column("best_quality", sa.Double()),
)
table(
    "replay_events",
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("sequence", sa.Integer(), primary_key=True),
    Column("event", sa.JSON(), nullable=False),
    Column("created_at", sa.DateTime(timezone=True), nullable=False),
)

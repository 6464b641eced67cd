"""replay openings: how each replayed curve begins, and how closely a report was checked."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from finishline.rules.verification.control_points import opening_of

revision: str = "0032"
down_revision: str | None = "0031"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

VERIFICATIONS_AT_ONCE = 100
VERIFICATIONS = sa.table(
    "verifications",
    sa.column("id", sa.String(20)),
    sa.column("benchmark_sha256", sa.String(64)),
    sa.column("report", sa.JSON()),
)
DEFINITIONS = sa.table(
    "benchmark_definitions",
    sa.column("sha256", sa.String(64)),
    sa.column("benchmark_id", sa.String(100)),
)
OPENINGS = sa.table(
    "replay_openings",
    sa.column("verification_id", sa.String(20)),
    sa.column("run", sa.Integer()),
    sa.column("benchmark_id", sa.String(100)),
    sa.column("seed", sa.BigInteger()),
    sa.column("opening", sa.String(64)),
)


def upgrade() -> None:
    """Apply. The replays that are stored are known curves as well."""
    op.create_table(
        "replay_openings",
        sa.Column("verification_id", sa.String(20), nullable=False),
        sa.Column("run", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("benchmark_id", sa.String(100), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("opening", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_replay_openings_verification_id_verifications"),
        ),
        sa.PrimaryKeyConstraint("verification_id", "run", name=op.f("pk_replay_openings")),
    )
    op.create_index(op.f("ix_replay_openings_opening"), "replay_openings", ["opening"])
    op.add_column("attempts", sa.Column("clock_slack_seconds", sa.Double(), nullable=True))
    _fill()


def _fill() -> None:
    connection, last = op.get_bind(), ""
    reported = (
        sa.select(VERIFICATIONS, DEFINITIONS.c.benchmark_id)
        .join(DEFINITIONS, DEFINITIONS.c.sha256 == VERIFICATIONS.c.benchmark_sha256)
        .order_by(VERIFICATIONS.c.id)
        .limit(VERIFICATIONS_AT_ONCE)
    )
    while rows := connection.execute(reported.where(VERIFICATIONS.c.id > last)).all():
        last = rows[-1].id
        openings = [opening for row in rows if row.report for opening in _openings(row)]
        if openings:
            connection.execute(sa.insert(OPENINGS), openings)


def _openings(row: Any) -> list[dict[str, Any]]:
    runs = [
        (run, opening_of([item["quality"] for item in run["evaluations"]]))
        for run in row.report["runs"]
    ]
    return [
        {
            "verification_id": row.id,
            "run": run["index"],
            "benchmark_id": row.benchmark_id,
            "seed": run["seed"],
            "opening": opening,
        }
        for run, opening in runs
        if opening is not None
    ]


def downgrade() -> None:
    """Take back."""
    op.drop_column("attempts", "clock_slack_seconds")
    op.drop_table("replay_openings")

"""time confirmed: whether the verdict that a status rests on confirms the claimed time."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from rules.confirmed_time import time_confirmed

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Reasons explain themselves at length: those of so many submissions are in memory at a time.
SUBMISSIONS_AT_ONCE = 500
SUBMISSIONS = sa.table(
    "submissions",
    sa.column("id", sa.String(20)),
    sa.column("status", sa.String(20)),
    sa.column("time_confirmed", sa.Boolean()),
)
VERIFICATIONS = sa.table(
    "verifications",
    sa.column("id", sa.String(20)),
    sa.column("submission_id", sa.String(20)),
    sa.column("kind", sa.String(20)),
    sa.column("outcome", sa.String(20)),
    sa.column("reasons", sa.JSON()),
    sa.column("created_at", sa.DateTime(timezone=True)),
)
DECISIONS = sa.table(
    "decisions",
    sa.column("verification_id", sa.String(20)),
    sa.column("decision", sa.String(10)),
    sa.column("decided_at", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    """Apply. What is told of a verified submission follows from the reasons that are stored."""
    op.add_column("submissions", sa.Column("time_confirmed", sa.Boolean(), nullable=True))
    _fill()


def _fill() -> None:
    connection, last = op.get_bind(), ""
    verified = (
        sa.select(SUBMISSIONS.c.id)
        .where(SUBMISSIONS.c.status == "verified")
        .order_by(SUBMISSIONS.c.id)
        .limit(SUBMISSIONS_AT_ONCE)
    )
    change = (
        sa.update(SUBMISSIONS)
        .where(SUBMISSIONS.c.id == sa.bindparam("submission"))
        .values(time_confirmed=sa.bindparam("confirmed"))
    )
    while ids := connection.scalars(verified.where(SUBMISSIONS.c.id > last)).all():
        last = ids[-1]
        found = _confirmed(connection, ids)
        if found:
            connection.execute(
                change, [{"submission": name, "confirmed": value} for name, value in found.items()]
            )


def _confirmed(connection: sa.Connection, ids: Sequence[str]) -> dict[str, bool | None]:
    """What the verification published last says of each submission that has one."""
    published = (
        sa.select(VERIFICATIONS)
        .join(DECISIONS, DECISIONS.c.verification_id == VERIFICATIONS.c.id)
        .where(VERIFICATIONS.c.submission_id.in_(ids), DECISIONS.c.decision == "publish")
        .order_by(DECISIONS.c.decided_at, VERIFICATIONS.c.created_at)
    )
    return {
        row.submission_id: time_confirmed(row.kind, row.outcome, row.reasons)
        for row in connection.execute(published)
    }


def downgrade() -> None:
    """Take back."""
    op.drop_column("submissions", "time_confirmed")

"""owners of pools: how many owners' workers stand behind a measured time, and since when."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0041"
down_revision: str | None = "0040"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# 0 stands for the organisers: all their workers count as one owner's.
OWNERS = """
SELECT DISTINCT r.pool_id, CASE WHEN u.role IN ('organiser', 'admin')
  OR (w.confirmed_at IS NOT NULL AND w.confirmed_by IS NULL) THEN 0 ELSE u.id END AS owner
FROM pool_runs r
JOIN verifications v ON v.id = r.verification_id
  OR (v.checks_id = r.verification_id AND v.outcome = 'verified')
JOIN attempts a ON a.verification_id = v.id AND a.state = 'done'
LEFT JOIN workers w ON w.name = a.worker
LEFT JOIN tokens t ON t.id = a.claimed_by
JOIN users u ON u.id = COALESCE(w.user_id, t.user_id)
WHERE r.counted
"""
POOLS = sa.table(
    "pools",
    *(sa.column(name) for name in ("id", "owners", "measured_at", "attested_at")),
    sa.column("by_organisers", sa.Boolean()),
)


def upgrade() -> None:
    """Apply. What is measured already counts the owners whose workers trained or checked it."""
    with op.batch_alter_table("pools") as batch:
        batch.add_column(sa.Column("owners", sa.Integer(), nullable=False, server_default="0"))
        batch.add_column(
            sa.Column("by_organisers", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        batch.add_column(sa.Column("attested_at", sa.DateTime(timezone=True), nullable=True))
    with op.batch_alter_table("pools") as batch:
        batch.alter_column("owners", server_default=None)
        batch.alter_column("by_organisers", server_default=None)
    connection = op.get_bind()
    owners: dict[str, set[int]] = {}
    for row in connection.execute(sa.text(OWNERS)):
        owners.setdefault(row.pool_id, set()).add(row.owner)
    for pool_id, found in owners.items():
        values = {"owners": len(found), "by_organisers": 0 in found}
        if 0 in found or len(found) > 1:
            values["attested_at"] = POOLS.c.measured_at
        connection.execute(sa.update(POOLS).where(POOLS.c.id == pool_id).values(**values))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("pools") as batch:
        for name in ("attested_at", "by_organisers", "owners"):
            batch.drop_column(name)

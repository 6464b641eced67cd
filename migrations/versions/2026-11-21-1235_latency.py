"""latency: what a worker measured, beside what a submission claims."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.add_column("submissions", sa.Column("measured_latency_ms", sa.Double(), nullable=True))


def downgrade() -> None:
    """Take back. The earlier schema's worker and judge know no verification of this kind."""
    latencies = "SELECT id FROM verifications WHERE kind = 'latency'"
    their_attempts = f"SELECT id FROM attempts WHERE verification_id IN ({latencies})"  # noqa: S608
    op.execute(f"DELETE FROM replay_events WHERE attempt_id IN ({their_attempts})")  # noqa: S608
    op.execute(f"DELETE FROM attempts WHERE verification_id IN ({latencies})")  # noqa: S608
    op.execute("DELETE FROM verifications WHERE kind = 'latency'")
    op.drop_column("submissions", "measured_latency_ms")

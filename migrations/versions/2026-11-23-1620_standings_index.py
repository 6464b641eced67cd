"""standings index: everything that ranks a submission but its cost and its pool's figures."""

from collections.abc import Sequence

from alembic import op

revision: str = "0047"
down_revision: str | None = "0046"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

STANDING = "ix_submissions_standing"
BEFORE = (
    *("benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"),
    *("withdrawn_at", "embargoed", "submitted_at", "id"),
)
ADDED = (
    *("latency_ms", "measured_latency_ms", "cost_usd_per_10000", "evidence", "check_word"),
    *("ticket_id", "pool_id"),
)


def upgrade() -> None:
    """Apply."""
    _index(*BEFORE, *ADDED)


def downgrade() -> None:
    """Take back."""
    _index(*BEFORE)


def _index(*columns: str) -> None:
    op.drop_index(STANDING, table_name="submissions")
    op.create_index(STANDING, "submissions", list(columns))

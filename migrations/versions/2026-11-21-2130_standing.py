"""standing: an index that has all that places and counts the submissions of a board."""

from collections.abc import Sequence

from alembic import op

revision: str = "0022"
down_revision: str | None = "0020"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TOP = "ix_submissions_benchmark_id_kind_tta_seconds"
STANDING = "ix_submissions_standing"
COLUMNS = (
    *("benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"),
    *("withdrawn_at", "embargoed", "submitted_at", "submitted_on", "id"),
)


def upgrade() -> None:
    """Apply. It begins with the columns of the one it replaces."""
    op.create_index(STANDING, "submissions", list(COLUMNS))
    op.drop_index(op.f(TOP), table_name="submissions")


def downgrade() -> None:
    """Take back."""
    op.create_index(op.f(TOP), "submissions", ["benchmark_id", "kind", "tta_seconds"])
    op.drop_index(STANDING, table_name="submissions")

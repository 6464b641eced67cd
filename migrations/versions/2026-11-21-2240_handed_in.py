"""handed_in: an index that has who handed in what, so that counting looks at no submission."""

from collections.abc import Sequence

from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

HANDED_IN = "ix_submissions_handed_in"
COLUMNS = (
    *("benchmark_id", "kind", "archive", "division", "user_id", "organisation"),
    *("submitted_at", "submitted_on", "embargoed"),
)


def upgrade() -> None:
    """Apply."""
    op.create_index(HANDED_IN, "submissions", list(COLUMNS))


def downgrade() -> None:
    """Take back."""
    op.drop_index(HANDED_IN, table_name="submissions")

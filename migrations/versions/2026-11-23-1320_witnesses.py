"""witnesses: tokens and workers that serve one submission, and who witnessed it."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0044"
down_revision: str | None = "0043"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Of each table: the column, its type, and the table that it names a row of.
KEYS = (
    ("tokens", "submission_id", sa.String(20), "submissions"),
    ("workers", "witness_for", sa.String(20), "submissions"),
    ("verifications", "witness_token_id", sa.Integer(), "tokens"),
)


def upgrade() -> None:
    """Apply. Nothing was witnessed before."""
    op.add_column("submissions", sa.Column("witnessed_by", sa.String(100), nullable=True))
    for table, name, kind, other in KEYS:
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column(name, kind, nullable=True))
            batch.create_foreign_key(batch.f(f"fk_{table}_{name}_{other}"), other, [name], ["id"])


def downgrade() -> None:
    """Take back."""
    for table, name, _, other in reversed(KEYS):
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(batch.f(f"fk_{table}_{name}_{other}"), type_="foreignkey")
            batch.drop_column(name)
    with op.batch_alter_table("submissions") as batch:
        batch.drop_column("witnessed_by")

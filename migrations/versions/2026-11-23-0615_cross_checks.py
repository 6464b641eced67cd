"""cross-checks: which verification's run another owner's worker trains again."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0037"
down_revision: str | None = "0036"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. What was checked before has no cross-check."""
    with op.batch_alter_table("verifications") as batch:
        batch.add_column(sa.Column("checks_id", sa.String(20), nullable=True))
        batch.create_foreign_key(
            batch.f("fk_verifications_checks_id_verifications"),
            "verifications",
            ["checks_id"],
            ["id"],
        )
        batch.create_index(batch.f("ix_verifications_checks_id"), ["checks_id"])


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("verifications") as batch:
        batch.drop_index(batch.f("ix_verifications_checks_id"))
        batch.drop_constraint(
            batch.f("fk_verifications_checks_id_verifications"), type_="foreignkey"
        )
        batch.drop_column("checks_id")

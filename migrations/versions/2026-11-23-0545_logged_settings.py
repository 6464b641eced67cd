"""Keep the hyperparameters that a run's log states.

Runs stored before have none until their submission is scored again (`finishline rescore`).

Revision ID: 0031
Revises: 0030
Create Date: 2026-11-23 05:18
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Bring the database up to date."""
    op.add_column("runs", sa.Column("settings", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("runs", "settings")

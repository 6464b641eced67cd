"""Links by which people join."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0050"
down_revision: str | None = "0049"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the table; nothing that is stored changes."""
    op.create_table(
        "invitations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("code_sha256", sa.String(64), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("uses_allowed", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mail_domain", sa.String(253), nullable=True),
        sa.Column("organisation_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.String(100), nullable=True),
        sa.Column("made_by", sa.Integer(), nullable=False),
        sa.Column("made_with", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
            name="fk_invitations_organisation_id_organisations",
        ),
        sa.ForeignKeyConstraint(["made_by"], ["users.id"], name="fk_invitations_made_by_users"),
        sa.ForeignKeyConstraint(
            ["made_with"], ["tokens.id"], name="fk_invitations_made_with_tokens"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
    )

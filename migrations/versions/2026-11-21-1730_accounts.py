"""accounts: organisations; users with a role and an end; tokens with scopes and a last use."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

USERS_KEY = "fk_users_organisation_id_organisations"
USERS_INDEX = "ix_users_organisation_id"
TOKENS_KEY = "fk_tokens_rotated_from_tokens"
# A role that was revoked is not given back, save to submit, which anybody may who ever did.
HIGHEST_ROLE = """
UPDATE users SET role = CASE
WHEN EXISTS (SELECT 1 FROM tokens WHERE tokens.user_id = users.id AND tokens.role = 'admin'
  AND tokens.revoked_at IS NULL) THEN 'admin'
WHEN EXISTS (SELECT 1 FROM tokens WHERE tokens.user_id = users.id AND tokens.role = 'organiser'
  AND tokens.revoked_at IS NULL) THEN 'organiser'
WHEN EXISTS (SELECT 1 FROM tokens WHERE tokens.user_id = users.id AND tokens.role = 'worker')
  AND NOT EXISTS (SELECT 1 FROM tokens WHERE tokens.user_id = users.id AND tokens.role <> 'worker')
  THEN 'worker'
ELSE 'submitter' END
"""
SCOPES = {
    "submitter": '["read", "submit", "tokens"]',
    "organiser": '["read", "submit", "organise", "tokens"]',
    "admin": '["read", "submit", "organise", "administer", "tokens"]',
    "worker": '["read", "work", "tokens"]',
}


def upgrade() -> None:
    """Apply. Every token keeps what its role may do, every user the highest role of theirs."""
    op.create_table(
        "organisations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organisations")),
        sa.UniqueConstraint("name", name=op.f("uq_organisations_name")),
    )
    with op.batch_alter_table("users") as users:
        users.add_column(
            sa.Column("role", sa.String(length=20), server_default="submitter", nullable=False)
        )
        users.add_column(sa.Column("organisation_id", sa.Integer(), nullable=True))
        users.add_column(sa.Column("email", sa.String(length=254), nullable=True))
        users.add_column(sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True))
        users.create_foreign_key(op.f(USERS_KEY), "organisations", ["organisation_id"], ["id"])
        users.create_index(op.f(USERS_INDEX), ["organisation_id"])
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("label", sa.String(length=100), nullable=True))
        tokens.add_column(sa.Column("scopes", sa.JSON(), server_default="[]", nullable=False))
        tokens.add_column(sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
        tokens.add_column(sa.Column("rotated_from", sa.Integer(), nullable=True))
        tokens.create_foreign_key(op.f(TOKENS_KEY), "tokens", ["rotated_from"], ["id"])
    op.execute(HIGHEST_ROLE)
    for role, scopes in SCOPES.items():
        op.execute(f"UPDATE tokens SET scopes = '{scopes}' WHERE role = '{role}'")  # noqa: S608


def downgrade() -> None:
    """Take back. The tokens of a disabled user stay ended; what is else dropped is told nowhere."""
    op.execute(
        "UPDATE tokens SET revoked_at = (SELECT disabled_at FROM users"
        " WHERE users.id = tokens.user_id) WHERE revoked_at IS NULL"
        " AND user_id IN (SELECT id FROM users WHERE disabled_at IS NOT NULL)"
    )
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_constraint(op.f(TOKENS_KEY), type_="foreignkey")
        for name in ("rotated_from", "last_used_at", "scopes", "label"):
            tokens.drop_column(name)
    with op.batch_alter_table("users") as users:
        users.drop_index(op.f(USERS_INDEX))
        users.drop_constraint(op.f(USERS_KEY), type_="foreignkey")
        for name in ("disabled_at", "email", "organisation_id", "role"):
            users.drop_column(name)
    op.drop_table("organisations")

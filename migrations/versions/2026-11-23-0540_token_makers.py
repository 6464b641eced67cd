"""token makers: which token another was made with; a worker's token makes none."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0033"
down_revision: str | None = "0032"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

KEY = "fk_tokens_made_with_tokens"
TOKENS = sa.table(
    "tokens", sa.column("id", sa.Integer()), sa.column("role"), sa.column("scopes", sa.JSON())
)


def upgrade() -> None:
    """Apply. The makers of earlier tokens are not known."""
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("made_with", sa.Integer(), nullable=True))
        tokens.create_foreign_key(op.f(KEY), "tokens", ["made_with"], ["id"])
    connection = op.get_bind()
    for token in connection.execute(sa.select(TOKENS).where(TOKENS.c.role == "worker")).all():
        scopes = [scope for scope in token.scopes if scope != "tokens"]
        connection.execute(sa.update(TOKENS).where(TOKENS.c.id == token.id).values(scopes=scopes))


def downgrade() -> None:
    """Take back. A worker's token makes none from here on either."""
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_constraint(op.f(KEY), type_="foreignkey")
        tokens.drop_column("made_with")

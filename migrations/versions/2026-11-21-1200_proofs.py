"""proofs: what each verification was judged on, and the public keys proofs are signed with."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "evidence",
        sa.Column("verification_id", sa.String(length=20), nullable=False),
        sa.Column("benchmark_sha256", sa.String(length=64), nullable=False),
        sa.Column("submission", sa.JSON(), nullable=False),
        sa.Column("code", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_sha256"],
            ["benchmark_definitions.sha256"],
            name=op.f("fk_evidence_benchmark_sha256_benchmark_definitions"),
        ),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_evidence_verification_id_verifications"),
        ),
        sa.PrimaryKeyConstraint("verification_id", name=op.f("pk_evidence")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("signing_keys")
    op.drop_table("evidence")

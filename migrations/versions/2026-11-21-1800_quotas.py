"""quotas: what somebody may use, which verifications are theirs, and accelerators of attempts."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Apply. Earlier attempts have no accelerators here: nobody is charged for them."""
    op.create_table(
        "quotas",
        sa.Column("subject_kind", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.String(length=100), nullable=False),
        sa.Column("measure", sa.String(length=40), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["set_by"], ["users.id"], name=op.f("fk_quotas_set_by_users")),
        sa.PrimaryKeyConstraint("subject_kind", "subject", "measure", name=op.f("pk_quotas")),
    )
    op.create_table(
        "charges",
        sa.Column("verification_id", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("gpu_seconds_reserved", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_charges_verification_id_verifications"),
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_charges_user_id_users")),
        sa.PrimaryKeyConstraint("verification_id", name=op.f("pk_charges")),
    )
    op.create_index(op.f("ix_charges_user_id_created_at"), "charges", ["user_id", "created_at"])
    op.add_column("attempts", sa.Column("accelerators", sa.Integer(), nullable=True))
    op.drop_index(op.f("ix_submissions_user_id"), table_name="submissions")
    op.create_index(
        op.f("ix_submissions_user_id_submitted_at"), "submissions", ["user_id", "submitted_at"]
    )


def downgrade() -> None:
    """Take back."""
    op.drop_index(op.f("ix_submissions_user_id_submitted_at"), table_name="submissions")
    op.create_index(op.f("ix_submissions_user_id"), "submissions", ["user_id"])
    op.drop_column("attempts", "accelerators")
    op.drop_index(op.f("ix_charges_user_id_created_at"), table_name="charges")
    op.drop_table("charges")
    op.drop_table("quotas")

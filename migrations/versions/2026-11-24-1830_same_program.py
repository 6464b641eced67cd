"""Training packages: the hash of their program, and the earlier submission of the same one."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from finishline.rules.trainings.manifest import Manifest
from finishline.rules.trainings.program import program_sha256

revision: str = "0054"
down_revision: str | None = "0053"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TRAININGS = sa.table(
    "trainings",
    sa.column("submission_id", sa.String),
    sa.column("manifest", sa.JSON),
    sa.column("files", sa.JSON),
    sa.column("program_sha256", sa.String),
)


def upgrade() -> None:
    """Add the columns, and hash the stored packages; their ranks stay as they are."""
    with op.batch_alter_table("trainings") as table:
        table.add_column(
            sa.Column("program_sha256", sa.String(64), nullable=False, server_default="")
        )
        table.add_column(sa.Column("same_program_as", sa.String(20), nullable=True))
        table.create_foreign_key(
            "fk_trainings_same_program_as_submissions", "submissions", ["same_program_as"], ["id"]
        )
    connection = op.get_bind()
    stored = connection.execute(
        sa.select(TRAININGS.c.submission_id, TRAININGS.c.manifest, TRAININGS.c.files)
    ).all()
    for row in stored:
        files = {name: text.encode() for name, text in row.files.items()}
        found = program_sha256(Manifest(**row.manifest), files)
        which = TRAININGS.c.submission_id == row.submission_id
        connection.execute(sa.update(TRAININGS).where(which).values(program_sha256=found))
    op.create_index("ix_trainings_program_sha256", "trainings", ["program_sha256"])

"""published results: what the import of a published result knows, apart from claims."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0046"
down_revision: str | None = "0045"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

STANDING = ("ix_submissions_standing", "benchmark_id kind tta_seconds division status eligible "
            "withdrawn_at embargoed submitted_at")  # fmt: skip
HANDED_IN = "ix_submissions_handed_in"
COLUMNS = ("archive", "source", "organisation", "submitted_on")
MOVE = """
INSERT INTO published_results (submission_id, organisation, published_on, source)
SELECT id, organisation, submitted_on, source FROM submissions WHERE archive
"""
MOVE_BACK = """
UPDATE submissions SET
  archive = true,
  organisation = (SELECT organisation FROM published_results WHERE submission_id = id),
  submitted_on = (SELECT published_on FROM published_results WHERE submission_id = id),
  source = (SELECT source FROM published_results WHERE submission_id = id)
WHERE id IN (SELECT submission_id FROM published_results)
"""


def upgrade() -> None:
    """Apply. What an archive's result has goes into a row of its own; a claim has none of it."""
    op.create_table(
        "published_results",
        sa.Column("submission_id", sa.String(20), nullable=False),
        sa.Column("organisation", sa.Text(), nullable=True),
        sa.Column("published_on", sa.Date(), nullable=True),
        sa.Column("source", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"],
            name=op.f("fk_published_results_submission_id_submissions"),
        ),
        sa.PrimaryKeyConstraint("submission_id", name=op.f("pk_published_results")),
    )  # fmt: skip
    op.execute(MOVE)
    _drop_indexes()
    for name in COLUMNS:
        op.drop_column("submissions", name)
    op.create_index(STANDING[0], "submissions", [*STANDING[1].split(), "id"])
    handed_in = "benchmark_id kind evidence division user_id submitted_at id embargoed"
    op.create_index(HANDED_IN, "submissions", handed_in.split())


def downgrade() -> None:
    """Take back."""
    _drop_indexes()
    archive = sa.Column("archive", sa.Boolean(), server_default=sa.false(), nullable=False)
    op.add_column("submissions", archive)
    op.add_column("submissions", sa.Column("source", sa.JSON(), nullable=True))
    op.add_column("submissions", sa.Column("organisation", sa.Text(), nullable=True))
    op.add_column("submissions", sa.Column("submitted_on", sa.Date(), nullable=True))
    op.execute(MOVE_BACK)
    op.drop_table("published_results")
    op.create_index(STANDING[0], "submissions", [*STANDING[1].split(), "submitted_on", "id"])
    handed_in = (
        "benchmark_id kind archive division user_id organisation submitted_at submitted_on "
        "embargoed"
    )
    op.create_index(HANDED_IN, "submissions", handed_in.split())


def _drop_indexes() -> None:
    for name in (STANDING[0], HANDED_IN):
        op.drop_index(name, table_name="submissions")

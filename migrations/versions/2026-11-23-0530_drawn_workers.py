"""drawn workers: what was sent to a hardware class and not claimed waits for a worker again."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ATTEMPTS = sa.table(
    "attempts",
    sa.column("state", sa.String(20)),
    sa.column("sent_to", sa.String(200)),
    sa.column("sends", sa.Integer()),
)


def upgrade() -> None:
    """Apply. `sent_to` was a hardware class; from here on it is the worker that was drawn."""
    _send_anew()


def downgrade() -> None:
    """Take back."""
    _send_anew()


def _send_anew() -> None:
    waiting = sa.update(ATTEMPTS).where(ATTEMPTS.c.state == "queued")
    op.execute(waiting.values(sent_to=None, sends=0))

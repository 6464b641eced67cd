"""Which submissions are nobody's business yet: the one place that a public export asks."""

from sqlalchemy import ColumnElement, or_

from server.database import utc_now
from server.models import Submission


def hidden_submissions() -> ColumnElement[bool]:
    """The condition of submissions that are not to be published at this moment."""
    return or_(Submission.embargoed.is_(True), Submission.revealed_at > utc_now())

"""Which submissions are nobody's business yet: the one place that a public export asks."""

from sqlalchemy import ColumnElement

from server.models import Submission


def hidden_submissions() -> ColumnElement[bool]:
    """The condition of submissions that are not to be published at this moment."""
    return Submission.embargoed.is_(True)

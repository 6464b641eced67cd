"""Waking a loop of this process once something is committed that it may act on.

Other processes hear nothing of it: theirs look by themselves every interval.
"""

from threading import Event

from sqlalchemy.orm import Session

from server.base.database import after_commit, state_of


class DispatchWakeup(Event):
    """Set when an attempt may be sent."""


class NoticeWakeup(Event):
    """Set when an event may be fanned out or a delivery started."""


def wake_after_commit(session: Session, wakeup: type[Event]) -> None:
    """Set a loop's event once this transaction is committed; never if it is rolled back."""
    after_commit(session, state_of(session, wakeup).set)

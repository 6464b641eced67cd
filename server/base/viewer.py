"""The viewer of a session: it decides which submissions the session shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from sqlalchemy.orm import Session

VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Users with submissions that are shown while under embargo.

    These users', those of everybody who is in this organisation, or all.

    The rules themselves are in server.base.models.visibility.
    """

    user_ids: tuple[int, ...] = ()
    organisation_id: int | None = None
    sees_all: bool = False


ANYBODY = Viewer()
# For the server's own work, and for requests of organisers.
ORGANISER = Viewer(sees_all=True)


def viewer_of(session: Session) -> Viewer:
    """The viewer of a session; one that writes sees everything."""
    return cast(Viewer, session.info.get(VIEWER) or ORGANISER)


@contextmanager
def seeing(session: Session, viewer: Viewer) -> Iterator[None]:
    """Read columns as somebody else does for a while.

    As ANYBODY for values cached for everybody; as ORGANISER for counts that are never shown.
    Objects would be kept by the session and shown to its own viewer, so ask for columns alone.
    """
    before = session.info.get(VIEWER)
    session.info[VIEWER] = viewer
    try:
        yield
    finally:
        session.info[VIEWER] = before


@contextmanager
def seeing_as_anybody(session: Session) -> Iterator[None]:
    """Read columns as ANYBODY for a while: for values cached for and shown to everybody."""
    with seeing(session, ANYBODY):
        yield

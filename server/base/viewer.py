"""Who reads: what a session shows depends on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from sqlalchemy.orm import Session

VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose submissions are shown while they are under embargo.

    These users', those of everybody who is in this organisation, or all.

    `sees_figures` lets columns of runs be read whose seeds, curves and logs are hidden: for the
    figures that a board shows of them meanwhile.

    The rules themselves are in server.base.models.visibility.
    """

    user_ids: tuple[int, ...] = ()
    organisation_id: int | None = None
    sees_all: bool = False
    sees_figures: bool = False


ANYBODY = Viewer()
# The server's own work, and what organisers ask for.
ORGANISER = Viewer(sees_all=True)


def viewer_of(session: Session) -> Viewer:
    """Who reads with a session; one that writes sees everything."""
    return cast(Viewer, session.info.get(VIEWER) or ORGANISER)


@contextmanager
def seeing(session: Session, viewer: Viewer) -> Iterator[None]:
    """Read columns as somebody else does for a while.

    As ANYBODY what is kept for everybody; as ORGANISER what is counted and never shown. Objects
    would be kept by the session and shown to its own viewer, so ask for columns alone.
    """
    before = session.info.get(VIEWER)
    session.info[VIEWER] = viewer
    try:
        yield
    finally:
        session.info[VIEWER] = before


@contextmanager
def seeing_as_anybody(session: Session) -> Iterator[None]:
    """For what is kept and shown to everybody."""
    with seeing(session, ANYBODY):
        yield


@contextmanager
def seeing_figures(session: Session) -> Iterator[None]:
    """Read columns of runs whose seeds, curves and logs are hidden; show figures of them alone."""
    with seeing(session, replace(viewer_of(session), sees_figures=True)):
        yield

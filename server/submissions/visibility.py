"""Who may see a submission, and which of them rank: the only place that knows.

A reading session shows its viewer nothing else, whatever is asked of it: each of its statements
gets the conditions below. So a query can forget to rank or to mark, never to hide. Sessions that
write see everything; so whoever answers from one has checked who asks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import cast

from sqlalchemy import ColumnElement, Select, Table, event, or_, select, true
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.sql.base import ExecutableOption

from server.accounts.roles import ORGANISERS
from server.database import VIEWER
from server.dependencies import Caller
from server.models import RunRow, Submission, Verification
from server.viewer import ANYBODY, ORGANISER, Viewer

KEPT_VIEWERS = 256
# Statements of the Core: what filters others is not to be filtered itself.
_rows = cast(Table, Submission.__table__)


def ranks() -> ColumnElement[bool]:
    """The condition of a submission that may rank, hold a record or be drawn among the others."""
    return Submission.withdrawn_at.is_(None)


def viewer_for(caller: Caller) -> Viewer:
    """What somebody who is signed in may see: what is theirs, or as an organiser everything.

    With a token that may not read they see what anybody does.
    """
    if not caller.may("read"):
        return ANYBODY
    if caller.role in ORGANISERS:
        return ORGANISER
    return Viewer(user_ids=(caller.user_id,))


def may_see(viewer: Viewer, *, embargoed: bool, user_id: int | None) -> bool:
    """Whether a viewer may see one submission."""
    return viewer.sees_all or not embargoed or user_id in viewer.user_ids


def viewer_of(session: Session) -> Viewer:
    """Who reads with a session; one that writes sees everything."""
    return cast(Viewer, session.info.get(VIEWER, ORGANISER))


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


def _hidden_ids(viewer: Viewer) -> Select[tuple[str]]:
    hidden = select(_rows.c.id).where(_rows.c.embargoed.is_(true()))
    if viewer.user_ids:
        hidden = hidden.where(_rows.c.user_id.not_in(viewer.user_ids))
    return hidden


@lru_cache(maxsize=KEPT_VIEWERS)
def _criteria(viewer: Viewer) -> tuple[ExecutableOption, ...]:
    seen: ColumnElement[bool] = ~Submission.embargoed
    if viewer.user_ids:
        seen = or_(seen, Submission.user_id.in_(viewer.user_ids))
    hidden = _hidden_ids(viewer)
    checked, against = Verification.submission_id, Verification.against_id
    return (
        with_loader_criteria(Submission, seen),
        with_loader_criteria(RunRow, RunRow.submission_id.not_in(hidden)),
        with_loader_criteria(
            Verification,
            or_(checked.is_(None), checked.not_in(hidden))
            & or_(against.is_(None), against.not_in(hidden)),
        ),
    )


@event.listens_for(Session, "do_orm_execute")
def _show_only_what_is_seen(state: ORMExecuteState) -> None:
    viewer: Viewer | None = state.session.info.get(VIEWER)
    if viewer is None or viewer.sees_all or not state.is_select:
        return
    # What is loaded along inherits the conditions of the statement that asked for the first row.
    if not state.is_column_load and not state.is_relationship_load:
        state.statement = state.statement.options(*_criteria(viewer))

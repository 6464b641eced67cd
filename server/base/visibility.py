"""The only rules of who may see a submission and its runs, and of which submissions rank.

Each statement of a reading session gets the conditions below. So a query can forget to rank or to
mark, but never to hide. Writing sessions see everything: check a request before you answer it from
one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from sqlalchemy import (
    Column,
    ColumnElement,
    Table,
    event,
    or_,
    select,
    true,
)
from sqlalchemy.orm import InstrumentedAttribute, ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.sql.base import ExecutableOption

from server.base.models import RunRow, Submission, TrainingPackage, User, Verification

VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A reader of embargoed submissions: of these users, of this organisation, or of all."""

    user_ids: tuple[int, ...] = ()
    organisation_id: int | None = None
    sees_all: bool = False


ANYBODY = Viewer()
# For the server itself, and for requests of organisers.
ORGANISER = Viewer(sees_all=True)


def viewer_of(session: Session) -> Viewer:
    """Return the viewer of a session. A writing session sees everything."""
    return cast(Viewer, session.info.get(VIEWER) or ORGANISER)


@contextmanager
def seeing(session: Session, viewer: Viewer) -> Iterator[None]:
    """Read columns as another viewer for a while.

    Take ANYBODY for values cached for everybody, ORGANISER for counts that stay hidden. Read
    columns only: the session would keep objects and show them to its viewer.
    """
    before = session.info.get(VIEWER)
    session.info[VIEWER] = viewer
    try:
        yield
    finally:
        session.info[VIEWER] = before


KEPT_VIEWERS = 256
# Core tables, because the filtering statements must stay unfiltered.
_rows = cast(Table, Submission.__table__)
_users = cast(Table, User.__table__)


def ranks() -> ColumnElement[bool]:
    """Return the condition for a submission to rank, hold a record or be drawn."""
    return Submission.withdrawn_at.is_(None)


def may_see(viewer: Viewer, submission: Submission) -> bool:
    """Return whether a viewer may see one submission."""
    if viewer.sees_all or not submission.embargoed or submission.user_id in viewer.user_ids:
        return True
    shared = viewer.organisation_id
    return shared is not None and submission.user.organisation_id == shared


def is_source_public(package: TrainingPackage) -> bool:
    """Return whether everybody may read a package's files and ablations."""
    return package.published_at is not None


def sees_source(viewer: Viewer, submission: Submission) -> bool:
    """Return whether a viewer may read a submission's code, if any, and its runs' output."""
    package = submission.trained_package
    is_theirs = viewer.sees_all or submission.user_id in viewer.user_ids
    return package is None or is_theirs or is_source_public(package)


def _is_theirs(
    viewer: Viewer, user_id: Column[int] | InstrumentedAttribute[int]
) -> ColumnElement[bool]:
    theirs = user_id.in_(viewer.user_ids)
    if viewer.organisation_id is None:
        return theirs
    members = select(_users.c.id).where(_users.c.organisation_id == viewer.organisation_id)
    return or_(theirs, user_id.in_(members))


@lru_cache(maxsize=KEPT_VIEWERS)
def _criteria(viewer: Viewer) -> tuple[ExecutableOption, ...]:
    seen: ColumnElement[bool] = ~Submission.embargoed
    is_hidden: ColumnElement[bool] = _rows.c.embargoed.is_(true())
    if viewer != ANYBODY:
        seen = or_(seen, _is_theirs(viewer, Submission.user_id))
        is_hidden &= ~_is_theirs(viewer, _rows.c.user_id)
    hidden = select(_rows.c.id).where(is_hidden)
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
    # Related rows inherit the conditions from the statement of the first row.
    if not state.is_column_load and not state.is_relationship_load:
        state.statement = state.statement.options(*_criteria(viewer))

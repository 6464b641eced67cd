"""Rules of who may see a submission and its runs, and which of them rank: they stand only here.

A reading session shows its viewer nothing else, whatever is asked of it: each of its statements
gets the conditions below. So a query can forget to rank or to mark, never to hide. Sessions that
write see everything; so a request that is answered from one has been checked.
"""

from datetime import timedelta
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Table,
    bindparam,
    event,
    or_,
    select,
    true,
)
from sqlalchemy.orm import InstrumentedAttribute, ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.sql.base import ExecutableOption

from server.base.database import UtcDateTime, utc_now
from server.base.models.people import User
from server.base.models.submissions import RunRow, Submission
from server.base.models.trainings import TrainingPackage
from server.base.models.verifications import Verification
from server.base.viewer import ANYBODY, VIEWER, Viewer

KEPT_VIEWERS = 256
# Seeds, curves and logs of a claim are hidden for so long where no verdict comes before.
LONGEST_HIDDEN = timedelta(days=30)
# The moment at which a statement is sent, not the one at which its conditions were built.
_NOW = bindparam("hidden_now", callable_=utc_now, type_=UtcDateTime())
# Tables of the Core, because statements that filter others must not be filtered themselves.
_rows = cast(Table, Submission.__table__)
_users = cast(Table, User.__table__)


def ranks() -> ColumnElement[bool]:
    """The condition of a submission that may rank, hold a record or be drawn among the others."""
    return Submission.withdrawn_at.is_(None)


def may_see(viewer: Viewer, submission: Submission) -> bool:
    """Whether a viewer may see one submission."""
    if viewer.sees_all or not submission.embargoed or submission.user_id in viewer.user_ids:
        return True
    shared = viewer.organisation_id
    return shared is not None and submission.user.organisation_id == shared


def is_hidden(submission: Submission) -> bool:
    """Tell whether seeds, curves and logs of a claim are its owner's and organisers' to see."""
    return submission.revealed_at is not None and submission.revealed_at > utc_now()


def sees_runs(viewer: Viewer, submission: Submission) -> bool:
    """Tell whether a viewer may see the seeds, curves and logs of a claim."""
    return viewer.sees_all or not is_hidden(submission) or submission.user_id in viewer.user_ids


def hides_runs() -> ColumnElement[bool]:
    """Return the same as a condition."""
    return _rows.c.revealed_at > _NOW


def reveal(submission: Submission) -> None:
    """Show seeds, curves and logs of a claim, or the source of a package, to everybody.

    Its first verdict does.
    """
    if is_hidden(submission):
        submission.revealed_at = utc_now()
    package = submission.trained_package
    if package is not None and package.published_at is None:
        package.published_at = utc_now()


def is_source_public(package: TrainingPackage) -> bool:
    """Whether everybody may read a package's files and factors."""
    return package.published_at is not None


def has_public_source() -> ColumnElement[bool]:
    """Return the same as a condition."""
    return TrainingPackage.published_at.is_not(None)


def sees_source(viewer: Viewer, submission: Submission) -> bool:
    """Whether a viewer may read a submission's package, and the lines of it that its runs wrote.

    True of a submission without a package.
    """
    package = submission.trained_package
    is_theirs = viewer.sees_all or submission.user_id in viewer.user_ids
    return package is None or is_theirs or is_source_public(package)


def _is_theirs(
    viewer: Viewer, user_id: Column[int] | InstrumentedAttribute[int]
) -> ColumnElement[bool]:
    """The condition of a submission that a viewer sees also while it is under embargo."""
    theirs = user_id.in_(viewer.user_ids)
    if viewer.organisation_id is None:
        return theirs
    members = select(_users.c.id).where(_users.c.organisation_id == viewer.organisation_id)
    return or_(theirs, user_id.in_(members))


def _runs_hidden_ids(viewer: Viewer) -> Select[tuple[str]]:
    return select(_rows.c.id).where(hides_runs(), _rows.c.user_id.not_in(viewer.user_ids))


def _hidden_ids(viewer: Viewer) -> Select[tuple[str]]:
    hidden: ColumnElement[bool] = _rows.c.embargoed.is_(true())
    if viewer != ANYBODY:
        hidden &= ~_is_theirs(viewer, _rows.c.user_id)
    return select(_rows.c.id).where(hidden)


@lru_cache(maxsize=KEPT_VIEWERS)
def _criteria(viewer: Viewer) -> tuple[ExecutableOption, ...]:
    """Conditions of what a viewer sees."""
    seen: ColumnElement[bool] = ~Submission.embargoed
    if viewer != ANYBODY:
        seen = or_(seen, _is_theirs(viewer, Submission.user_id))
    hidden = _hidden_ids(viewer)
    checked, against = Verification.submission_id, Verification.against_id
    runs: ColumnElement[bool] = RunRow.submission_id.not_in(hidden)
    if not viewer.sees_figures:
        runs &= RunRow.submission_id.not_in(_runs_hidden_ids(viewer))
    return (
        with_loader_criteria(Submission, seen),
        with_loader_criteria(RunRow, runs),
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
    # Related rows inherit the conditions of the statement that asked for the first row.
    if not state.is_column_load and not state.is_relationship_load:
        state.statement = state.statement.options(*_criteria(viewer))


def hidden_runs(verification: Verification, viewer: Viewer) -> int:
    """Number of a verification's first runs whose curves are hidden from a viewer."""
    claim = verification.submission
    return 0 if claim is None or sees_runs(viewer, claim) else verification.own_runs


def without_quality(event: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Remove the quality from an event of one of the first `hidden` runs."""
    return event | {"quality": None} if event["run"] < hidden and "quality" in event else event

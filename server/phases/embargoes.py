"""The end of an embargo: what was hidden is shown, and boards know that they have changed."""

from datetime import datetime

from sqlalchemy import select, true, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.phases import is_embargoed
from server.board_versions import raise_board_version
from server.models import Submission
from server.phases.queries import all_current_phases, current_phases
from server.phases.schemas import phases_of


def due_embargoes(session: Session, now: datetime) -> list[str]:
    """The benchmarks with hidden submissions whose embargo is over."""
    hidden = session.scalars(
        select(Submission.benchmark_id).where(Submission.embargoed.is_(true())).distinct()
    ).all()
    if not hidden:
        return []
    rows = all_current_phases(session)
    return [name for name in hidden if not is_embargoed(phases_of(rows.get(name)), now)]


def lift_embargo(session: Session, benchmark_id: str, now: datetime) -> int:
    """Show what a benchmark hides if its embargo is over; returns how many submissions that is.

    What was shown once is never hidden again. The version of the board is raised first: whoever
    sets the dates does the same, and so the two take turns.
    """
    raise_board_version(session, benchmark_id)
    if is_embargoed(phases_of(current_phases(session, benchmark_id)), now):
        return 0
    shown = session.execute(
        update(Submission)
        .where(Submission.benchmark_id == benchmark_id, Submission.embargoed.is_(true()))
        .values(embargoed=False)
        .returning(Submission.id)
        .execution_options(synchronize_session=False)
    )
    return len(shown.all())

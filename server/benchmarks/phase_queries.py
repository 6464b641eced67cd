"""Reading the phases of benchmarks."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, func, select
from sqlalchemy.orm import Session

from server.base.models import BenchmarkPhases

_CURRENT = (
    select(BenchmarkPhases)
    .where(BenchmarkPhases.benchmark_id == bindparam("benchmark_id"))
    .order_by(BenchmarkPhases.id.desc())
    .limit(1)
    .execution_options(populate_existing=True)
)


class Dates(NamedTuple):
    """The dates of a benchmark, and the definition that is frozen, if one is."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None


_SET = cast(Table, BenchmarkPhases.__table__).c
_DATES = (
    select(_SET.opens_at, _SET.freezes_at, _SET.closes_at, _SET.embargo_until, _SET.frozen_sha256)
    .where(_SET.benchmark_id == bindparam("benchmark_id"))
    .order_by(_SET.id.desc())
    .limit(1)
)


def current_phases(session: Session, benchmark_id: str) -> BenchmarkPhases | None:
    """What holds for a benchmark; None if nobody ever set anything."""
    return session.scalar(_CURRENT, {"benchmark_id": benchmark_id})


def current_dates(session: Session, benchmark_id: str) -> Dates | None:
    """As `current_phases`, of what each submission is held to alone, and not as an object."""
    session.flush()  # As before each statement of the session's own.
    row = session.connection().execute(_DATES, {"benchmark_id": benchmark_id}).one_or_none()
    return None if row is None else Dates._make(row)


def all_current_phases(session: Session) -> dict[str, BenchmarkPhases]:
    """What holds, by benchmark id; one without is left out."""
    latest = select(func.max(BenchmarkPhases.id)).group_by(BenchmarkPhases.benchmark_id)
    rows = session.scalars(select(BenchmarkPhases).where(BenchmarkPhases.id.in_(latest)))
    return {row.benchmark_id: row for row in rows}


def phases_history(session: Session, benchmark_id: str) -> Sequence[BenchmarkPhases]:
    """Everything that was ever set for a benchmark, the latest first."""
    return session.scalars(
        select(BenchmarkPhases)
        .where(BenchmarkPhases.benchmark_id == benchmark_id)
        .order_by(BenchmarkPhases.id.desc())
    ).all()

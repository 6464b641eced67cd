"""Read the phases of benchmarks."""

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
    """Dates of a benchmark, and its frozen definition, if there is one."""

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
    """Latest phases of a benchmark; None if none were ever set."""
    return session.scalar(_CURRENT, {"benchmark_id": benchmark_id})


def current_dates(session: Session, benchmark_id: str) -> Dates | None:
    """Columns of `current_phases` that apply to each submission, without an ORM object."""
    session.flush()  # As before each statement of the session's own.
    row = session.connection().execute(_DATES, {"benchmark_id": benchmark_id}).one_or_none()
    return None if row is None else Dates._make(row)


def all_current_phases(session: Session) -> dict[str, BenchmarkPhases]:
    """Latest phases by benchmark id; benchmarks without any are left out."""
    latest = select(func.max(BenchmarkPhases.id)).group_by(BenchmarkPhases.benchmark_id)
    rows = session.scalars(select(BenchmarkPhases).where(BenchmarkPhases.id.in_(latest)))
    return {row.benchmark_id: row for row in rows}


def phases_history(session: Session, benchmark_id: str) -> Sequence[BenchmarkPhases]:
    """Every change of a benchmark's phases, the latest first."""
    return session.scalars(
        select(BenchmarkPhases)
        .where(BenchmarkPhases.benchmark_id == benchmark_id)
        .order_by(BenchmarkPhases.id.desc())
    ).all()

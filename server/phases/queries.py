"""Reading the phases of benchmarks."""

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from server.models import BenchmarkPhases

_CURRENT = (
    select(BenchmarkPhases)
    .where(BenchmarkPhases.benchmark_id == bindparam("benchmark_id"))
    .order_by(BenchmarkPhases.id.desc())
    .limit(1)
    .execution_options(populate_existing=True)
)


def current_phases(session: Session, benchmark_id: str) -> BenchmarkPhases | None:
    """What holds for a benchmark; None if nobody ever set anything."""
    return session.scalar(_CURRENT, {"benchmark_id": benchmark_id})


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

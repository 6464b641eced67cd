"""The runs that an attempt without a report had finished, as it posted them."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.messages import ReplayRun
from finishline.rules.verification.sealed_runs import streamed_runs
from server.models import Attempt, ReplayEventRow

ENDED_EARLY = ("lost", "failed")


def posted_runs(session: Session, attempt: Attempt, benchmark: Benchmark) -> list[ReplayRun]:
    """Read the finished runs of an attempt from its events. Raises RuleError as these do."""
    rows = session.scalars(
        select(ReplayEventRow.event)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence)
    )
    return streamed_runs(benchmark, rows.all(), seeds=attempt.verification.seeds)

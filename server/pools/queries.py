"""Reading a pool: its runs are shown to everybody who may see one of its submissions."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from server.errors import NotFoundError
from server.models import Pool, PoolRun, Submission, Verification
from server.pools.fresh import fresh_runs_under_way
from server.pools.schemas import PoolRunView, PoolView


def find_pool(session: Session, pool_id: str) -> Pool:
    """A pool by id. Raises NotFoundError."""
    pool = session.get(Pool, pool_id)
    if pool is None:
        raise NotFoundError(f"There is no pool {pool_id!r}.")
    return pool


def view_pool(session: Session, pool_id: str) -> PoolView:
    """A pool with its runs. Raises NotFoundError where the reader may see none of its submissions.

    Those are the submissions that it measures, and those that were trained for it.
    """
    pool = find_pool(session, pool_id)
    trained = select(Verification.submission_id).where(Verification.pool_id == pool.id)
    named = or_(Submission.pool_id == pool.id, Submission.id.in_(trained))
    statement = select(Submission.id).where(named)
    seen = session.scalars(statement.order_by(Submission.submitted_at, Submission.id)).all()
    if not seen:
        raise NotFoundError(f"There is no pool {pool_id!r}.")
    fresh = fresh_runs_under_way(session, pool)
    return PoolView(
        id=pool.id,
        benchmark=pool.benchmark_id,
        benchmark_sha256=pool.benchmark_sha256,
        division=pool.division,
        hardware_class=pool.hardware_class,
        settings=pool.settings,
        state=pool.state,
        measured_seconds=pool.measured_seconds,
        low_seconds=pool.low_seconds,
        high_seconds=pool.high_seconds,
        opened_at=pool.opened_at,
        measured_at=pool.measured_at,
        closed_at=pool.closed_at,
        closed_because=pool.closed_because,
        submissions=list(seen),
        fresh_runs=None if fresh is None else fresh.id,
        runs=[_run_view(run) for run in _runs(session, pool)],
    )


def _runs(session: Session, pool: Pool) -> list[PoolRun]:
    """In the order in which they were trained."""
    statement = (
        select(PoolRun)
        .join(Verification, Verification.id == PoolRun.verification_id)
        .where(PoolRun.pool_id == pool.id)
        .order_by(Verification.created_at, PoolRun.verification_id, PoolRun.index)
    )
    return list(session.scalars(statement))


def _run_view(run: PoolRun) -> PoolRunView:
    return PoolRunView(
        verification_id=run.verification_id,
        run=run.index,
        seed=run.seed,
        seconds=run.seconds,
        epochs=run.epochs,
        fresh=run.fresh,
        counted=run.counted,
    )

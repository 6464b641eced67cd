"""Read calibrations: their runs, and the one that judges a verification."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.verification.calibration import calibrated_by
from finishline.rules.verification.purposes import PURPOSES
from server.base.errors import no_such
from server.base.models import Calibration, CalibrationRunRow, Verification
from server.benchmarks.queries import definition

COMPLETE = ("reached", "not_reached")  # A run that failed has no curve to its end.


def find_calibration(session: Session, calibration_id: str) -> Calibration:
    """Read a calibration by id. Raises NotFoundError."""
    calibration = session.get(Calibration, calibration_id)
    if calibration is None:
        raise no_such("calibration", calibration_id)
    return calibration


def lock_calibration(session: Session, calibration_id: str) -> Calibration:
    """Lock a calibration until this transaction ends. Raises NotFoundError.

    A transaction that also holds a verification locks that one first. An inserted run holds a
    share lock on its calibration's key, which this lock allows: two chunks that end at once would
    wait for each other otherwise.
    """
    find_calibration(session, calibration_id)
    return session.scalars(
        select(Calibration)
        .where(Calibration.id == calibration_id)
        .with_for_update(of=Calibration, key_share=True)
        .execution_options(populate_existing=True)
    ).one()


def list_calibrations(
    session: Session, *, benchmark_id: str | None, limit: int
) -> list[Calibration]:
    """Calibrations, newest first."""
    query = select(Calibration).order_by(Calibration.created_at.desc()).limit(limit)
    if benchmark_id is not None:
        query = query.where(Calibration.benchmark_id == benchmark_id)
    return list(session.scalars(query))


def count_runs(session: Session) -> dict[str, int]:
    """Finished runs by calibration id."""
    rows = session.execute(
        select(CalibrationRunRow.calibration_id, func.count()).group_by(
            CalibrationRunRow.calibration_id
        )
    )
    return dict(rows.all())


def chunks_of(session: Session, calibration_id: str) -> list[Verification]:
    """Chunks of sealed runs of a calibration, in the order they were planned."""
    return list(
        session.scalars(
            select(Verification)
            .where(
                Verification.calibration_id == calibration_id, Verification.kind == "calibration"
            )
            .order_by(Verification.created_at, Verification.id)
            .options(selectinload(Verification.attempts), selectinload(Verification.trainings))
        )
    )


def finished_runs(session: Session, calibration_id: str) -> list[CalibrationRunRow]:
    """Every run of a calibration that ended, by batch size and seed."""
    return list(
        session.scalars(
            select(CalibrationRunRow)
            .where(CalibrationRunRow.calibration_id == calibration_id)
            .order_by(CalibrationRunRow.batch_size, CalibrationRunRow.seed)
        )
    )


def reference_runs(rows: list[CalibrationRunRow]) -> list[ReferenceRun]:
    """Runs that went to their end, in the form of a benchmark file."""
    return [
        ReferenceRun(batch_size=row.batch_size, seed=row.seed, quality=tuple(row.quality))
        for row in rows
        if row.status in COMPLETE
    ]


def adopted_calibration(
    session: Session, benchmark_sha256: str, precision: str | None = None
) -> Calibration | None:
    """Calibration adopted last for a definition and a precision, None for the reference's own.

    It judges verifications planned from then on.
    """
    return session.scalars(
        select(Calibration)
        .where(
            Calibration.benchmark_sha256 == benchmark_sha256,
            Calibration.adopted_at.is_not(None),
            Calibration.precision.is_(None)
            if precision is None
            else Calibration.precision == precision,
        )
        .order_by(Calibration.adopted_at.desc(), Calibration.version.desc())
        .limit(1)
    ).first()


def judging_ids(session: Session) -> set[str]:
    """Ids of the calibrations adopted last, one for each definition and precision."""
    adopted = session.scalars(
        select(Calibration)
        .where(Calibration.adopted_at.is_not(None))
        .order_by(Calibration.adopted_at, Calibration.version)
    )
    last = {(each.benchmark_sha256, each.precision): each.id for each in adopted}
    return set(last.values())


def judging_benchmark(
    session: Session, benchmark_sha256: str, calibration_id: str | None
) -> Benchmark:
    """Definition, with the runs of a calibration in place of its own if one is named."""
    benchmark = definition(session, benchmark_sha256)
    if calibration_id is None:
        return benchmark
    return calibrated_by(benchmark, reference_runs(finished_runs(session, calibration_id)))


def benchmark_of(session: Session, verification: Verification) -> Benchmark:
    """Benchmark that judges a verification, as planned: a later adoption does not change it."""
    judged_by = verification.calibration_id if PURPOSES[verification.kind].is_evidence else None
    return judging_benchmark(session, verification.benchmark_sha256, judged_by)

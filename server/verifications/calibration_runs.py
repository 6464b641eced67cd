"""Store the runs of calibrations as they end, and update the calibration's state."""

from dataclasses import asdict

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.verification.messages import ReplayReport
from server.base.database import utc_now
from server.base.models import Calibration, CalibrationRunRow, Verification
from server.base.standing import OPEN
from server.benchmarks.calibrations import chunks_of, lock_calibration


def keep_calibrated(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store the runs of a finished chunk and update the state of its calibration."""
    keep_runs(session, verification, report)
    settle_calibration(session, verification)


def keep_runs(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store every run of a chunk. Runs that diverged or ran out of time count as well."""
    for run, training in zip(report.runs, verification.trainings, strict=True):
        session.add(
            CalibrationRunRow(
                calibration_id=verification.calibration_id,
                batch_size=int(training.settings["batch_size"]),
                seed=run.seed,
                verification_id=verification.id,
                status=run.status,
                quality=[evaluation.quality for evaluation in run.evaluations],
                seconds=[evaluation.seconds for evaluation in run.evaluations],
                system=asdict(report.system),
            )
        )


def settle_calibration(session: Session, verification: Verification) -> None:
    """End the calibration of a chunk that has ended, if it was the last one under way."""
    if verification.kind != "calibration" or verification.calibration_id is None:
        return
    session.flush()
    calibration = lock_calibration(session, verification.calibration_id)
    if any(chunk.state in OPEN for chunk in chunks_of(session, calibration.id)):
        return
    calibration.state = "done" if has_every_run(session, calibration) else "incomplete"
    calibration.ended_at = utc_now()


def has_every_run(session: Session, calibration: Calibration) -> bool:
    """Whether each batch size has as many finished runs as were requested."""
    rows = session.execute(
        select(CalibrationRunRow.batch_size, func.count())
        .where(CalibrationRunRow.calibration_id == calibration.id)
        .group_by(CalibrationRunRow.batch_size)
    )
    counts = dict(rows.all())
    return all(counts.get(size, 0) >= calibration.runs for size in calibration.batch_sizes)

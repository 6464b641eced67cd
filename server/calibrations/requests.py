"""Calibrations as organisers start, continue and cancel them: with a record of who did."""

from typing import Any

from sqlalchemy.orm import Session

from server.audit.service import Subject, record
from server.benchmarks.queries import find_benchmark, keep_definition
from server.calibrations.schemas import CalibrationContinue, CalibrationCreate
from server.calibrations.service import (
    cancel_calibration,
    continue_calibration,
    start_calibration,
)
from server.dependencies import Caller, Parts
from server.errors import ContentError
from server.models import Calibration


def ask_for_calibration(
    parts: Parts, session: Session, caller: Caller, wanted: CalibrationCreate
) -> Calibration:
    """Start a calibration; written to the audit log.

    Raises NotFoundError for an unknown benchmark, ContentError if it cannot be calibrated so.
    """
    benchmark = find_benchmark(parts.benchmarks, wanted.benchmark)
    if len(set(wanted.batch_sizes)) != len(wanted.batch_sizes):
        raise ContentError(f"batch_sizes: got {wanted.batch_sizes}; expected each size once.")
    keep_definition(session, benchmark, parts.settings.benchmarks_dir)
    calibration = start_calibration(
        session,
        benchmark,
        batch_sizes=wanted.batch_sizes,
        runs=wanted.runs,
        requested_by=caller.user_id,
        reason=wanted.reason,
    )
    after = wanted.model_dump(exclude={"reason"})
    _record(session, caller, "calibration.start", calibration, wanted.reason, after)
    return calibration


def go_on_with_calibration(
    session: Session, caller: Caller, calibration_id: str, wanted: CalibrationContinue
) -> Calibration:
    """Queue what is missing of a calibration; written to the audit log.

    Raises NotFoundError, ConflictError if nothing is missing.
    """
    calibration = continue_calibration(
        session, calibration_id, batch_sizes=wanted.batch_sizes, runs=wanted.runs
    )
    after = {"batch_sizes": calibration.batch_sizes, "runs": calibration.runs}
    _record(session, caller, "calibration.continue", calibration, None, after)
    return calibration


def end_calibration(session: Session, caller: Caller, calibration_id: str) -> Calibration:
    """End what is under way of a calibration; written to the audit log.

    Raises NotFoundError, ConflictError if nothing is under way.
    """
    calibration = cancel_calibration(session, calibration_id)
    after = {"state": calibration.state}
    _record(session, caller, "calibration.cancel", calibration, None, after)
    return calibration


def _record(
    session: Session,
    caller: Caller,
    action: str,
    calibration: Calibration,
    reason: str | None,
    after: dict[str, Any],
) -> None:
    subject = Subject("calibration", calibration.id)
    record(session, caller, action, subject, reason=reason, before=None, after=after)

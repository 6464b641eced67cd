"""Speed-ups: after a verdict that measured a package it is trained in turn with the reference."""

from sqlalchemy.orm import Session

from finishline.rules.trainings.environment import closest_environment
from finishline.rules.verification.purposes import SPEED_UP
from finishline.rules.verification.speed_up import measured_speed_up
from server.base.board_versions import raise_board_version
from server.base.errors import ServerError
from server.base.models import Verification, WorkerRow
from server.base.standing import purpose_of, report_of
from server.benchmarks.queries import definition
from server.benchmarks.references import reference_package
from server.verifications.service import request_verification


def follow_with_speed_up(session: Session, measured: Verification) -> None:
    """Queue the runs beside the reference, if a verdict measured a package and a worker can.

    Nothing is queued while such runs are under way.
    """
    submission = measured.submission
    if submission is None or measured.outcome != "verified":
        return
    session.flush()
    try:
        if not _has_reference_environment(session, measured):
            return
        request_verification(
            session,
            submission,
            requested_by=measured.requested_by,
            reason=f"the reference beside it, after verification {measured.id}",
            purpose=SPEED_UP,
        )
    except ServerError:  # No reference, one under way, withdrawn meanwhile, or a file is lost.
        return


def _has_reference_environment(session: Session, measured: Verification) -> bool:
    """Whether the worker that measured a package can train the reference too."""
    reference = reference_package(session, definition(session, measured.benchmark_sha256))
    worker = session.get(WorkerRow, measured.attempts[-1].worker)
    if reference is None or worker is None:
        return False
    found = dict((worker.box or {}).get("environments", {}))
    return closest_environment(reference.manifest.environment, found) is not None


def show_speed_up(session: Session, verification: Verification) -> None:
    """Put the speed-up of the latest runs beside the reference on the package's row.

    Without one, because a run missed the target, the row has none. Runs that the machinery or a
    noisy worker spoilt leave an earlier one there. Other jobs change nothing.
    """
    submission = verification.submission
    if not purpose_of(verification).beside_reference or submission is None:
        return
    package, report = submission.package, report_of(verification)
    if package is None or report is None:
        return
    found = None
    if any(
        reason["weight"] == "leaves_open" and reason["code"] != SPEED_UP.name
        for reason in verification.reasons
    ):
        return
    if verification.outcome == "verified":
        found = measured_speed_up(definition(session, verification.benchmark_sha256), report)
    package.speed_up = None if found is None else found.ratio
    package.speed_up_low = None if found is None else found.low
    package.speed_up_high = None if found is None else found.high
    package.speed_up_pairs = None if found is None else found.pairs
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)

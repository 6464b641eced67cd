"""Proofs: the parts of a bundle, and its bytes."""

import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.calibration import judged_beside
from finishline.rules.proof.proof import (
    LOGS_FOLDER,
    PROOF_NAME,
    AttemptPart,
    BenchmarkPart,
    CalibratedRun,
    CalibrationPart,
    DrawPart,
    PostedEvaluation,
    VerificationPart,
)
from finishline.rules.verification.messages import Failure
from finishline.rules.verification.replay_plan import FRESH_RUNS
from server.base.artifacts import CHUNK_BYTES, ArtifactStore
from server.base.database import moment_text
from server.base.errors import ConflictError, LostFileError, NotFoundError
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Evidence,
    ReplayEventRow,
    SigningKey,
    Verification,
)
from server.base.settings import MIB
from server.base.standing import purpose_of
from server.benchmarks.calibrations import benchmark_of
from server.verifications.outcomes import own_again
from server.verifications.proof_evidence import code_part, submission_part
from server.verifications.report_checks import posted_events

Table = dict[str, Any]


def proof_parts(session: Session, verification: Verification) -> Table:
    """Parts of a verification's proof, by name.

    One that ended before evidence was stored has its submission as it is today.
    """
    submission = verification.submission
    if submission is None or not purpose_of(verification).is_evidence:
        raise ConflictError(
            f"Verification {verification.id} is a {verification.kind}: only a replay of a "
            "submission has a proof."
        )
    kept = session.get(Evidence, verification.id)
    sha256 = kept.benchmark_sha256 if kept is not None else verification.benchmark_sha256
    return {
        "verification": asdict(_verification_part(verification)),
        "benchmark": asdict(_benchmark_part(session, sha256)),
        "calibration": _calibration_part(session, verification),
        "submission": kept.submission if kept is not None else submission_part(session, submission),
        "draw": asdict(_draw_part(session, verification)),
        "plan": {
            "control_points": verification.control_points,
            "max_attempts": verification.max_attempts,
            "lease_seconds": verification.lease_seconds,
            "limit_seconds": verification.limit_seconds,
        },
        "attempts": [asdict(_attempt_part(session, item)) for item in verification.attempts],
        "report": None if verification.state == "cancelled" else verification.report,
        "verdict": _verdict_part(session, verification),
        "code": kept.code if kept is not None else code_part(session),
    }


def _verdict_part(session: Session, verification: Verification) -> Table:
    part = {"outcome": verification.outcome, "reasons": verification.reasons}
    again = own_again(session, verification)
    return part | {"own_again": [asdict(run) for run in again]} if again else part


def known_keys(session: Session) -> list[SigningKey]:
    """Every key that signed a proof, newest first."""
    query = select(SigningKey).order_by(SigningKey.created_at.desc(), SigningKey.id)
    return list(session.scalars(query))


def _verification_part(verification: Verification) -> VerificationPart:
    ended = verification.ended_at
    return VerificationPart(
        id=verification.id,
        state=verification.state,  # type: ignore[arg-type]  # it has ended
        reason=verification.reason,
        created_at=moment_text(verification.created_at),
        ended_at=moment_text(ended) if ended is not None else None,
    )


def _benchmark_part(session: Session, sha256: str) -> BenchmarkPart:
    row = session.get(BenchmarkDefinition, sha256)
    if row is None:
        raise NotFoundError(f"There is no benchmark definition {sha256}.")
    return BenchmarkPart(id=row.benchmark_id, sha256=sha256, definition=row.content)


def _calibration_part(session: Session, verification: Verification) -> Table | None:
    if verification.calibration_id is None:
        return None
    runs = benchmark_of(session, verification).reference_runs
    part = CalibrationPart(
        id=verification.calibration_id,
        runs=[CalibratedRun(run.batch_size, run.seed, list(run.quality)) for run in runs],
    )
    return asdict(part)


def _draw_part(session: Session, verification: Verification) -> DrawPart:
    calibration_id = verification.calibration_id
    return DrawPart(
        seal=verification.seal,
        nonce=verification.nonce,
        runs=verification.runs,
        seeds=verification.seeds,
        own_runs=verification.own_runs,
        beside=({FRESH_RUNS: verification.runs} if verification.fresh else {})
        | (
            {}
            if calibration_id is None
            else judged_beside(calibration_id, benchmark_of(session, verification))
        ),
    )


def _attempt_part(session: Session, attempt: Attempt) -> AttemptPart:
    started, ended, slack = attempt.started_at, attempt.ended_at, attempt.clock_slack_seconds
    return AttemptPart(
        number=attempt.number,
        state=attempt.state,
        worker=attempt.worker,
        started_at=moment_text(started) if started is not None else None,
        ended_at=moment_text(ended) if ended is not None else None,
        failure=Failure(**attempt.failure) if attempt.failure is not None else None,
        evaluations=[] if attempt.state == "done" else _posted(session, attempt),
        posted=None if slack is None else posted_events(session, attempt),
        clock_slack_seconds=slack,
    )


def _posted(session: Session, attempt: Attempt) -> list[PostedEvaluation]:
    """Posted evaluations of an attempt without a report, so that nothing is dropped unseen."""
    rows = session.scalars(
        select(ReplayEventRow)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence)
    )
    return [
        PostedEvaluation(
            run=row.event["run"],
            epoch=row.event["epoch"],
            samples=row.event["samples"],
            seconds=row.event["seconds"],
            quality=row.event["quality"],
        )
        for row in rows
        if row.event["kind"] == "evaluation"
    ]


# A zip must say when a file was made; the earliest moment it can say is the same every time.
MOMENT = (1980, 1, 1, 0, 0, 0)
IN_MEMORY_BYTES = 8 * MIB


def write_bundle(proof: bytes, files: Iterable[str], artifacts: ArtifactStore) -> IO[bytes]:
    """Write the zip of a proof and of the stored files of these hashes; at its beginning.

    Raises LostFileError naming a file that the store has lost.
    """
    target = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  the caller closes it
    try:
        with zipfile.ZipFile(target, "w") as bundle:
            bundle.writestr(_entry(PROOF_NAME), proof)
            for sha256 in sorted(set(files)):
                _add(bundle, sha256, artifacts)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _add(bundle: zipfile.ZipFile, sha256: str, artifacts: ArtifactStore) -> None:
    try:
        source = artifacts.open(sha256)
    except OSError as error:
        raise LostFileError(sha256) from error
    with source, bundle.open(_entry(LOGS_FOLDER + sha256), "w") as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    entry.create_system = 3
    return entry

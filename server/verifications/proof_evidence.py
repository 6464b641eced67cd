"""Store the evidence of a verification in the transaction that ends it."""

from dataclasses import asdict
from typing import Any, cast

import orjson
from sqlalchemy.orm import Session

from finishline.rules.proof.proof import ClaimPart, LogFile, SubmissionPart
from finishline.rules.scoring.measurements import PrecisionName
from finishline.rules.submissions.claim import TrainedWith, stored_system
from server.base.code_version import code_version
from server.base.database import insert_missing, moment_text, utc_now
from server.base.models import Evidence, Submission, Verification
from server.base.room_state import state_of
from server.base.services import Services
from server.base.standing import claimed_runs, purpose_of
from server.submissions.service import runs_with_curves


def keep_evidence(session: Session, verification: Verification) -> None:
    """Store the evidence of a verification once: a later rescoring does not change it."""
    submission = verification.submission
    if submission is None or not purpose_of(verification).is_evidence:
        return
    insert_missing(
        session,
        Evidence,
        verification_id=verification.id,
        benchmark_sha256=verification.benchmark_sha256,
        submission=submission_part(session, submission),
        code=code_part(session),
        created_at=utc_now(),
    )


def code_part(session: Session) -> dict[str, Any]:
    """Version of the running code, as plain JSON."""
    return asdict(code_version(state_of(session, Services).settings.code_commit))


def submission_part(session: Session, submission: Submission) -> dict[str, Any]:
    """Submission of a proof, as plain JSON."""
    part = SubmissionPart(
        id=submission.id,
        submitter=submission.submitter,
        division=submission.division,
        submitted_at=moment_text(submission.submitted_at),
        claim_sha256=submission.claim_sha256,
        claim=ClaimPart(
            model=submission.model,
            framework=submission.framework,
            hyperparameters=dict(submission.hyperparameters),
            system=stored_system(submission.system),
            precision=cast(PrecisionName | None, submission.precision),
            trained_with=cast(TrainedWith, submission.trained_with),
        ),
        logs=[LogFile(run.file, run.log_sha256, run.log_bytes) for run in submission.runs],
        runs=claimed_runs(submission),
        curves=[run.curve for run in runs_with_curves(session, submission.id)],
        result=submission.result,
    )
    plain: dict[str, Any] = orjson.loads(orjson.dumps(asdict(part)))
    return plain

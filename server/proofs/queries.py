"""Reading all that a proof bundle holds."""

from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.messages import Failure
from rules.proof import (
    AttemptPart,
    BenchmarkPart,
    DrawPart,
    PostedEvaluation,
    VerificationPart,
)
from server.code_version import code_version
from server.database import moment_text
from server.errors import NotFoundError
from server.models import (
    Attempt,
    BenchmarkDefinition,
    Evidence,
    ReplayEventRow,
    SigningKey,
    Verification,
)
from server.proofs.evidence import submission_part

Table = dict[str, Any]


def proof_parts(session: Session, verification: Verification) -> Table:
    """The parts of a verification's proof, by name.

    One that ended before evidence was kept is shown with its submission as it is today.
    """
    kept = session.get(Evidence, verification.id)
    submission = verification.submission
    sha256 = kept.benchmark_sha256 if kept is not None else submission.benchmark_sha256
    return {
        "verification": asdict(_verification_part(verification)),
        "benchmark": asdict(_benchmark_part(session, sha256)),
        "submission": kept.submission if kept is not None else submission_part(submission),
        "draw": asdict(_draw_part(verification)),
        "plan": {
            "control_points": verification.control_points,
            "max_attempts": verification.max_attempts,
            "lease_seconds": verification.lease_seconds,
            "limit_seconds": verification.limit_seconds,
        },
        "attempts": [asdict(_attempt_part(session, item)) for item in verification.attempts],
        "report": verification.report,
        "verdict": {"outcome": verification.outcome, "reasons": verification.reasons},
        "code": kept.code if kept is not None else asdict(code_version()),
    }


def list_keys(session: Session) -> list[SigningKey]:
    """Every key that a proof was ever signed with, newest first."""
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


def _draw_part(verification: Verification) -> DrawPart:
    return DrawPart(
        seal=verification.seal,
        nonce=verification.nonce,
        runs=len(verification.seeds),
        seeds=verification.seeds,
    )


def _attempt_part(session: Session, attempt: Attempt) -> AttemptPart:
    started, ended = attempt.started_at, attempt.ended_at
    return AttemptPart(
        number=attempt.number,
        state=attempt.state,
        worker=attempt.worker,
        started_at=moment_text(started) if started is not None else None,
        ended_at=moment_text(ended) if ended is not None else None,
        failure=Failure(**attempt.failure) if attempt.failure is not None else None,
        evaluations=[] if attempt.state == "done" else _posted(session, attempt),
    )


def _posted(session: Session, attempt: Attempt) -> list[PostedEvaluation]:
    """What an attempt without a report had measured: so that nothing is dropped unseen."""
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

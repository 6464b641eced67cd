"""Accepting a submission: check and score first, then store everything in one transaction."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.run import Run
from rules.scoring import Result, RunScore
from rules.submission import ScoredSubmission, score_submission
from server.artifacts import Staged
from server.audit.service import Subject, record
from server.benchmarks.queries import keep_definition
from server.database import utc_now
from server.dependencies import Caller, Parts
from server.errors import ConflictError, ContentError, NotAllowedError
from server.leaderboard.service import raise_board_version
from server.models import RunRow, Submission
from server.submissions.queries import find_by_idempotency_key
from server.submissions.schemas import stored_result
from server.submissions.upload import StagedLogs, Upload
from server.verifications.service import verify_by_policy

MAX_KEY_LENGTH = 200


@dataclass(frozen=True)
class Accepted:
    """A stored submission's id, and whether this request had been answered before."""

    submission_id: str
    repeated: bool


def new_id() -> str:
    """A short random id for a URL: 60 bits, 12 letters and digits."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(secrets.choice(alphabet) for _ in range(12))


def submit(parts: Parts, caller: Caller, upload: Upload, *, key: str | None) -> Accepted:
    """Check, score and store an upload. Raises a RuleError listing every problem.

    An archive is stored with the rules it breaks, and only an organiser may hand it in.

    With an idempotency key the same request is stored once and answered the same; another request
    under the same key is a ConflictError. When this returns, the submission is stored.
    """
    if upload.archive and caller.role != "organiser":
        raise NotAllowedError(
            "Only an organiser may hand in an archive; send yours without the field archive."
        )
    check_idempotency_key(key)
    earlier = _find_earlier(parts, caller, upload, key)
    if earlier is not None:
        return earlier
    scored = score_submission(
        upload.claim_json,
        StagedLogs(upload.logs),
        parts.benchmarks,
        file=upload.claim_file,
        benchmark_id=upload.benchmark_id,
        division=upload.division,
        archive=upload.archive,
    )
    try:
        return Accepted(_store(parts, caller, upload, scored, key=key), repeated=False)
    except IntegrityError:
        # Two requests under one key came at the same time; the other one won.
        earlier = _find_earlier(parts, caller, upload, key)
        if earlier is None:
            raise
        return earlier


def check_idempotency_key(key: str | None) -> None:
    """Raise ContentError unless the key is absent or 1 to 200 printable characters."""
    if key is not None and not (key.strip() and len(key) <= MAX_KEY_LENGTH and key.isprintable()):
        raise ContentError(
            f"Header Idempotency-Key: expected 1 to {MAX_KEY_LENGTH} printable characters."
        )


def _find_earlier(parts: Parts, caller: Caller, upload: Upload, key: str | None) -> Accepted | None:
    if key is None:
        return None
    with parts.database.read() as session:
        earlier = find_by_idempotency_key(session, caller.user_id, key)
        if earlier is None:
            return None
        if earlier.request_sha256 != upload.sha256:
            raise ConflictError(
                f"This Idempotency-Key was used for submission {earlier.id} with other content; "
                "use a new key for a new submission."
            )
        return Accepted(earlier.id, repeated=True)


def _store(
    parts: Parts, caller: Caller, upload: Upload, scored: ScoredSubmission, *, key: str | None
) -> str:
    benchmark = parts.benchmarks[scored.claim.benchmark_id]
    submission = _submission_row(caller, upload, scored, benchmark, key=key)
    with parts.database.write() as session:
        keep_definition(session, benchmark, parts.settings.benchmarks_dir)
        session.add(submission)
        session.flush()
        session.add_all(_run_rows(submission.id, scored, upload.logs))
        raise_board_version(session, benchmark.benchmark_id)
        _keep_files(parts, upload)
        if upload.archive:
            _record_import(session, caller, submission)
        else:
            verify_by_policy(session, submission, benchmark, scored.claim)
    return submission.id


def _record_import(session: Session, caller: Caller, submission: Submission) -> None:
    record(
        session,
        caller,
        "archive.import",
        Subject("submission", submission.id),
        reason=None,
        before=None,
        after={
            "benchmark": submission.benchmark_id,
            "organisation": submission.organisation,
            "claim_sha256": submission.claim_sha256,
            "tta_seconds": submission.tta_seconds,
        },
    )


def _keep_files(parts: Parts, upload: Upload) -> None:
    """Before the commit, so that a stored submission always has its logs."""
    parts.artifacts.keep(parts.artifacts.stage_bytes(upload.claim_json))
    for log in upload.logs.values():
        parts.artifacts.keep(log)


def _submission_row(
    caller: Caller,
    upload: Upload,
    scored: ScoredSubmission,
    benchmark: Benchmark,
    *,
    key: str | None,
) -> Submission:
    claim, result = scored.claim, scored.result
    return Submission(
        id=new_id(),
        user_id=caller.user_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        division=claim.division,
        model=claim.model,
        framework=claim.framework,
        system=asdict(claim.system),
        hyperparameters=dict(claim.hyperparameters),
        code_url=claim.code_url,
        notes=claim.notes,
        claim_sha256=upload.claim_sha256,
        dawnbench=dict(claim.dawnbench) if claim.dawnbench is not None else None,
        status="claimed",
        latency_ms=None,
        **result_figures(result),
        idempotency_key=key,
        request_sha256=upload.sha256,
        submitted_at=utc_now(),
        archive=upload.archive,
        organisation=claim.organisation,
        submitted_on=claim.submitted_on,
    )


def result_figures(result: Result) -> dict[str, Any]:
    """What is derived from all runs, by the column it is kept in."""
    return {
        "eligible": result.eligible,
        "tta_seconds": result.tta_seconds,
        "cost_usd": result.cost_usd,
        "result": stored_result(result),
    }


def _run_rows(
    submission_id: str, scored: ScoredSubmission, logs: Mapping[str, Staged]
) -> list[RunRow]:
    pairs = zip(scored.runs, scored.result.runs, strict=True)
    return [
        _run_row(submission_id, index, run, score, logs[run.name])
        for index, (run, score) in enumerate(pairs)
    ]


def _run_row(submission_id: str, index: int, run: Run, score: RunScore, log: Staged) -> RunRow:
    return RunRow(
        submission_id=submission_id,
        index=index,
        file=run.name,
        log_sha256=log.sha256,
        log_bytes=log.size_bytes,
        **run_figures(run, score),
    )


def run_figures(run: Run, score: RunScore) -> dict[str, Any]:
    """What is derived from a run's log, by the column it is kept in."""
    return {
        "seed": run.seed,
        "reached": score.reached,
        "tta_seconds": score.tta_seconds,
        "epochs_to_target": score.epochs_to_target,
        "best_quality": score.best_quality,
        "batch_size": run.batch_size,
        "convergence": score.convergence,
        "ledger": asdict(run.ledger) if run.ledger is not None else None,
        "curve": [[e.epoch, e.seconds, e.quality, e.samples] for e in run.evaluations],
    }

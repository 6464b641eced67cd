"""Asking for a duel, and ending one. Neither submission's status depends on it."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.duel import (
    RECORD_PAIRS,
    SIDES,
    duel_reasons,
    interleave,
    judge_duel,
    pair_runs,
    why_no_duel,
)
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.replay_plan import draw
from server.audit.service import Subject, record
from server.benchmarks.queries import definition
from server.database import utc_now
from server.dependencies import Caller
from server.duels.challenges import require_open_record
from server.duels.schemas import DuelCreate
from server.errors import ConflictError, ContentError
from server.models import Submission, Verification
from server.notices.announce import announce_verification
from server.submissions.queries import find_submission
from server.verifications.queries import OPEN, claim_of
from server.verifications.queueing import queue_verification

Hyperparameters = list[dict[str, float]]


def ask_for_duel(session: Session, caller: Caller, body: DuelCreate) -> Verification:
    """Ask for a duel; written to the audit log. Raises as `request_duel` does."""
    verification = request_duel(session, body, requested_by=caller.user_id)
    record(
        session,
        caller,
        "duel.request",
        Subject("verification", verification.id),
        reason=body.reason,
        before=None,
        after=body.model_dump(exclude={"reason"}) | {"seal": verification.seal},
    )
    return verification


def request_duel(session: Session, body: DuelCreate, *, requested_by: int) -> Verification:
    """Draw and seal a duel, and queue its first attempt.

    Raises NotFoundError if a submission is missing, ContentError if the two cannot fight,
    ConflictError if they do already.
    """
    challenger, holder = _lock_both(session, body)
    benchmark = _require_comparable(session, challenger, holder)
    if benchmark.replay is None:
        raise ContentError(f"{benchmark.benchmark_id} has no reference model to replay yet.")
    _require_no_other(session, challenger, holder)
    if body.pairs == RECORD_PAIRS:
        require_open_record(session, challenger, holder)
    drawn = draw(secrets.token_bytes(32), runs=2 * body.pairs)
    settings = _settings_by_run(benchmark, (challenger, holder), pairs=body.pairs)
    return queue_verification(
        session,
        benchmark,
        drawn,
        kind="duel",
        submission=challenger,
        against=holder,
        requested_by=requested_by,
        reason=body.reason,
        hyperparameters=settings,
        beside={"against": holder.id, "hyperparameters": settings, "kind": "duel"},
    )


def _lock_both(session: Session, body: DuelCreate) -> tuple[Submission, Submission]:
    if body.challenger == body.holder:
        raise ContentError(
            f"Submission {body.challenger} cannot fight itself; expected two submissions."
        )
    found = find_submission(session, body.challenger), find_submission(session, body.holder)
    # In one order, so that two requests for the same two submissions take turns.
    ids = (body.challenger, body.holder)
    ordered = select(Submission.id).where(Submission.id.in_(ids)).order_by(Submission.id)
    session.execute(ordered.with_for_update())
    for one in found:
        session.refresh(one, ["withdrawn_at"])
        if one.withdrawn_at is not None:
            raise ConflictError(f"Submission {one.id} is withdrawn; it fights no duel.")
    return found


def _require_comparable(session: Session, challenger: Submission, holder: Submission) -> Benchmark:
    if challenger.benchmark_sha256 != holder.benchmark_sha256:
        raise ContentError(
            f"Submissions {challenger.id} ({challenger.benchmark_id}) and {holder.id} "
            f"({holder.benchmark_id}) were scored under different definitions; "
            "expected two of one benchmark and version."
        )
    benchmark = definition(session, challenger.benchmark_sha256)
    unable = why_no_duel(benchmark, claim_of(challenger), claim_of(holder))
    if unable is not None:
        raise ContentError(
            f"Submissions {challenger.id} and {holder.id} cannot have a duel: {unable}."
        )
    return benchmark


def _require_no_other(session: Session, challenger: Submission, holder: Submission) -> None:
    ids = (challenger.id, holder.id)
    under_way = session.scalar(
        select(Verification.id).where(
            Verification.kind == "duel",
            Verification.submission_id.in_(ids),
            Verification.against_id.in_(ids),
            Verification.state.in_(OPEN),
        )
    )
    if under_way is not None:
        raise ConflictError(
            f"Duel {under_way} of these two is under way; wait for it or cancel it."
        )


def _settings_by_run(
    benchmark: Benchmark, sides: Sequence[Submission], *, pairs: int
) -> Hyperparameters:
    """What each run trains with, complete: nothing of one side is a default of the other."""
    complete = {
        side: benchmark.defaults() | dict(submission.hyperparameters)
        for side, submission in zip(SIDES, sides, strict=True)
    }
    return [complete[side] for side in interleave(pairs)]


def end_duel(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store who is faster, or that it cannot be told. No submission's status changes."""
    submission = verification.submission
    if submission is None:
        raise ValueError(f"verification {verification.id} is a duel without a challenger")
    benchmark = definition(session, verification.benchmark_sha256)
    duel = judge_duel(pair_runs(benchmark, report))
    reasons = duel_reasons(duel, claimed_on=claim_of(submission).system, trained_on=report.system)
    verification.report = asdict(report)
    verification.state = "done"
    verification.outcome = duel.outcome
    verification.reasons = [asdict(reason) for reason in reasons]
    verification.ended_at = utc_now()
    announce_verification(session, verification, "verification.done")

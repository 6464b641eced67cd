"""Asking for a duel, and ending one. Neither submission's status depends on it."""

import secrets

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.duel import RECORD_PAIRS, why_no_duel
from finishline.rules.verification.job import Request
from finishline.rules.verification.purposes import DUEL
from server.audit.service import Subject, record
from server.benchmarks.queries import definition
from server.dependencies import Caller
from server.duels.challenges import require_open_record
from server.duels.schemas import DuelCreate
from server.errors import ConflictError, ContentError
from server.models import Submission, Verification
from server.submissions.queries import find_submission
from server.verifications.queries import OPEN, claim_of
from server.verifications.queueing import Order, queue_job


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
    request = Request(
        benchmark,
        secrets.token_bytes(32),
        claims=[claim_of(challenger), claim_of(holder)],
        wishes={"pairs": body.pairs},
    )
    order = Order(
        DUEL,
        request,
        submission=challenger,
        against=holder,
        requested_by=requested_by,
        reason=body.reason,
        sealed={"against": holder.id},
    )
    return queue_job(session, order)


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

"""Request duels of two submissions."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.duel import why_no_duel
from finishline.rules.verification.job import Request
from finishline.rules.verification.purposes import DUEL
from server.base.errors import ConflictError, ContentError
from server.base.models import Submission, Verification
from server.base.replay_estimate import Basis, Estimator
from server.base.standing import OPEN, claim_of, kind_that_checks
from server.benchmarks.phase_queries import rules_that_differ
from server.benchmarks.queries import definition
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.submissions.service import find_submission, lock_submissions
from server.verifications.jobs import Order, queue_job
from server.verifications.requests import DuelCreate


@dataclass(frozen=True)
class Cost:
    """Runs of a duel, the seconds of devices that all of them take, and the basis of these."""

    runs: int
    device_seconds: float
    seconds_a_pair: float
    basis: tuple[Basis, ...]


def cost_of_duel(
    session: Session, benchmark: Benchmark, sides: Sequence[Submission], *, pairs: int
) -> Cost:
    """Estimate a duel of two submissions by the runs that measured each, or by their limit."""
    estimates = [
        Estimator(session, kind_that_checks(side)).estimate(side, benchmark, claim_of(side))
        for side in sides
    ]
    a_pair = sum(each.seconds / each.runs * max(each.accelerators, 1) for each in estimates)
    basis = tuple(dict.fromkeys(each.basis for each in estimates))
    return Cost(2 * pairs, pairs * a_pair, a_pair, basis)


def ask_for_duel(session: Session, caller: Caller, body: DuelCreate) -> Verification:
    """Request a duel; written to the audit log. Raises as `request_duel` does."""
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
    """Draw and seal a duel, and queue its first attempt."""
    challenger, holder = _lock_both(session, body)
    benchmark = require_comparable(session, challenger, holder)
    _require_no_other(session, challenger, holder)
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
            f"Submission {body.challenger} cannot have a duel with itself; expected two "
            "submissions."
        )
    found = find_submission(session, body.challenger), find_submission(session, body.holder)
    lock_submissions(session, body.challenger, body.holder)
    for one in found:
        session.refresh(one, ["withdrawn_at"])
        if one.withdrawn_at is not None:
            raise ConflictError(f"Submission {one.id} is withdrawn and cannot have a duel.")
        if one.duplicate_of is not None:
            raise ConflictError(
                f"Submission {one.id} is a duplicate of {one.duplicate_of}. Name that one instead."
            )
    return found


def require_comparable(session: Session, challenger: Submission, holder: Submission) -> Benchmark:
    """The challenger's definition, which both are trained under."""
    both = f"Submissions {challenger.id} and {holder.id}"
    if challenger.benchmark_id != holder.benchmark_id:
        raise ContentError(
            f"{both} are of {challenger.benchmark_id} and {holder.benchmark_id}; expected two of "
            "one benchmark."
        )
    benchmark = definition(session, challenger.benchmark_sha256)
    differ = rules_that_differ(definition(session, holder.benchmark_sha256), benchmark)
    if differ:
        raise ContentError(
            f"{both} were scored under definitions with another {', another '.join(differ)}: "
            "their times do not compare."
        )
    unable = why_no_duel(benchmark, claim_of(challenger), claim_of(holder))
    if unable is not None:
        raise ContentError(f"{both} cannot have a duel: {unable}.")
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

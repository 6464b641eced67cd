"""Request duels, by hand or for a record, one challenge of a record at a time."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased, undefer

from finishline.api.duels import DuelCreate
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.phases import rules_that_differ
from finishline.rules.ranking.records import (
    AGAIN_AFTER,
    DUEL_ALPHA,
    Contender,
    may_duel,
    measured_history,
)
from finishline.rules.verification.duel import RECORD_PAIRS, WITHDRAWN, why_no_duel
from finishline.rules.verification.job import Request
from finishline.rules.verification.purposes import DUEL
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError, ServerError
from server.base.models import Pool, Submission, Verification
from server.base.replay_estimate import Basis, Estimator
from server.base.standing import (
    OPEN,
    claim_of,
    is_challenge,
    kind_that_checks,
    p_of_record_duel,
    purpose_of,
)
from server.benchmarks.queries import definition
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.submissions.service import find_submission, lock_submissions
from server.verifications.jobs import Order, queue_job
from server.verifications.record_candidates import contenders
from server.verifications.workers import is_organisers_worker


def record_holder(session: Session, benchmark_id: str, division: str) -> Contender | None:
    """Measured configuration that holds the record of a division; None before the first."""
    return holder_among(contenders(session, benchmark_id).get((division, "measured"), ()))


def holder_among(found: Sequence[Contender]) -> Contender | None:
    """Holder of the record among the measured configurations of a division."""
    records = measured_history(found).records
    return next((one for one in found if records and one.pool == records[-1].pool), None)


def require_open_record(session: Session, challenger: Submission, holder: Submission) -> None:
    """Raise ConflictError while a record is challenged, or for 30 days after a lost challenge.

    Only a duel of ten pairs against the pool that holds the record challenges it.
    """
    # The board's row is locked by this, so that of two challenges one sees the other.
    raise_board_version(session, holder.benchmark_id)
    record = record_holder(session, holder.benchmark_id, holder.division)
    if record is None or record.pool is None or holder.pool_id != record.pool:
        return
    refuse_another_challenge(session, challenger, record.pool)


def open_challenge(session: Session, holding: str) -> str | None:
    """Duel under way that challenges the record of a pool; None without one."""
    found = _challenges(session, holding)
    return next((duel.id for duel, _ in found if duel.state in OPEN), None)


def refuse_another_challenge(session: Session, challenger: Submission, holding: str) -> None:
    """Raise ConflictError while the pool that holds a record may not be challenged."""
    for duel, pool_id in _challenges(session, holding):
        if duel.state in OPEN:
            raise ConflictError(
                f"Duel {duel.id} challenges this record since {duel.created_at:%Y-%m-%d}: one "
                "challenge of a record is open at a time. Wait for it: "
                f"/verifications/{duel.id}"
            )
        if pool_id != challenger.pool_id or duel.ended_at is None or not is_lost(duel):
            continue
        again = duel.ended_at + AGAIN_AFTER
        if utc_now() < again:
            raise ConflictError(
                f"Duel {duel.id} for this record was lost on {duel.ended_at:%Y-%m-%d}: ask again "
                f"from {again:%Y-%m-%d} on."
            )


def is_lost(duel: Verification) -> bool:
    """Whether the challenger of a record was not shown to be faster, or was withdrawn meanwhile."""
    if any(reason["code"] == WITHDRAWN.code for reason in duel.reasons):
        return True
    p_value = p_of_record_duel(duel) if duel.state == "done" else None
    return p_value is not None and p_value >= DUEL_ALPHA


def has_won(session: Session, duel: Verification) -> bool | None:
    """Whether a challenge took the record; None of another job, and of one without a result.

    A duel on a worker that is not the organisers' moves no record: won, it has no result.
    """
    if not is_challenge(duel):
        return None
    if is_lost(duel):
        return False
    if duel.state != "done" or p_of_record_duel(duel) is None:
        return None
    return is_organisers_worker(session, duel.attempts[-1].worker or "") or None


def _challenges(session: Session, pool_id: str) -> list[tuple[Verification, str | None]]:
    """Duels of ten pairs against a pool, with the pool of each challenger."""
    challenger, holder = aliased(Submission), aliased(Submission)
    statement = (
        select(Verification, challenger.pool_id)
        .join(challenger, challenger.id == Verification.submission_id)
        .join(holder, holder.id == Verification.against_id)
        .where(Verification.kind == "duel", holder.pool_id == pool_id)
        .options(undefer(Verification.reasons))
        .order_by(Verification.created_at)
    )
    return [
        (duel, challenging)
        for duel, challenging in session.execute(statement)
        if duel.runs == 2 * RECORD_PAIRS
    ]


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
    a_pair = sum(each.seconds / each.runs * DUEL.devices(each.accelerators) for each in estimates)
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
    """Draw and seal a duel, and queue its first attempt.

    Raises NotFoundError if a submission is missing, ContentError if the two cannot be compared,
    ConflictError if they are in a duel already.
    """
    challenger, holder = _lock_both(session, body)
    benchmark = require_comparable(session, challenger, holder)
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
            f"Submission {body.challenger} cannot have a duel with itself; expected two "
            "submissions."
        )
    found = find_submission(session, body.challenger), find_submission(session, body.holder)
    lock_submissions(session, body.challenger, body.holder)
    for one in found:
        session.refresh(one, ["withdrawn_at"])
        if one.withdrawn_at is not None:
            raise ConflictError(f"Submission {one.id} is withdrawn and cannot have a duel.")
    return found


def require_comparable(session: Session, challenger: Submission, holder: Submission) -> Benchmark:
    """The challenger's definition, which both are trained under.

    Raises ContentError if they cannot have a duel.
    """
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


def challenge_record(session: Session, fresh: Verification) -> None:
    """Queue a duel with the record's holder, if fresh runs beat its time and both may have one.

    None is queued while another challenge is under way: an organiser requests it later. A package
    challenges by its submitter's request, at the cost of her quota.
    """
    pool = None if fresh.pool_id is None else session.get(Pool, fresh.pool_id)
    is_own_request = purpose_of(fresh).in_box
    if not fresh.fresh or is_own_request or pool is None or pool.state != "measured":
        return
    holder = record_holder(session, pool.benchmark_id, pool.division)
    found = contenders(session, pool.benchmark_id).get((pool.division, "measured"), ())
    challenger = next((one for one in found if one.pool == pool.id), None)
    if holder is None or challenger is None or holder.pool == pool.id:
        return
    if challenger.tta_seconds is None or holder.tta_seconds is None:
        return
    if challenger.tta_seconds >= holder.tta_seconds or not may_duel(challenger, holder):
        return
    wanted = DuelCreate(
        challenger=challenger.submission_id,
        holder=holder.submission_id,
        pairs=RECORD_PAIRS,
        reason="record: its fresh runs beat the holder's time",
    )
    try:
        request_duel(session, wanted, requested_by=fresh.requested_by)
    except ServerError:  # The record is challenged already, or one was withdrawn meanwhile.
        return

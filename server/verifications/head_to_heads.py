"""Head-to-heads of two submissions: train one stage by stage, and keep its runs."""

from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from finishline.rules.statistics.aggregate import Spread
from finishline.rules.verification.head_to_head import (
    FEWEST_FOR_OWN_SPREAD,
    SIDES,
    HeadToHead,
    judge_head_to_head,
    looks_of,
    pair_runs,
    threshold,
)
from finishline.rules.verification.job import Contest
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.models import Attempt, Pool, Submission, User, Verification
from server.base.standing import OPEN, report_of
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.definitions import definition
from server.verifications.jobs import Order, queue_job
from server.verifications.pools import Spreads, add_to_pool, timed_runs


def queue_pairs(
    session: Session,
    challenger: Submission,
    holder: Submission,
    *,
    pairs: int | None = None,
    **asked: Any,
) -> Verification:
    """Draw, seal and queue pairs of a head-to-head, without a number its first ones.

    `asked` says who asks for them and why, as an order does.
    """
    if pairs is None:
        pairs = looks_of(definition(session, challenger.benchmark_sha256).ranking.pairs)[0]
    wishes = {"pairs": pairs}
    order = Order(HEAD_TO_HEAD, submission=challenger, against=holder, wishes=wishes, **asked)
    return queue_job(session, order)


def continue_head_to_head(session: Session, verification: Verification) -> None:
    """Keep the runs of a stage that has ended, and queue the pairs that are still needed."""
    challenger, holder = verification.submission, verification.against
    if challenger is None or holder is None:
        return
    _keep_runs(session, verification, holder)
    if verification.outcome == "challenger_faster":
        for stage in (*verification.earlier_stages, verification):
            _keep_runs(session, stage, challenger)
    if verification.outcome != "continues":
        return
    pairs = judged_head_to_head(session, verification).next_pairs
    reserved = verification.gpu_seconds_reserved
    if reserved is not None:
        reserved *= 2 * pairs / verification.runs
    queue_pairs(
        session,
        challenger,
        holder,
        pairs=pairs,
        requested_by=verification.requested_by,
        reason=verification.reason,
        continues=verification,
        reserved=reserved,
    )


def _keep_runs(session: Session, verification: Verification, side: Submission) -> None:
    """Add the runs of one side to those that measure its time, without void ones."""
    report = report_of(verification)
    pool = None if side.pool_id is None else session.get(Pool, side.pool_id)
    if report is None or pool is None or verification.outcome == "inconclusive":
        return
    benchmark = benchmark_of(session, verification)
    counted = timed_runs(verification, benchmark, report, hardware_class=pool.hardware_class)
    name = SIDES[0] if side is verification.submission else SIDES[1]
    pairs = judged_head_to_head(session, verification).pairs[-(verification.runs // 2) :]
    trained = [getattr(pair, name) for pair in pairs]
    own = {run.run for run in trained if run.ending != "void"}
    add_to_pool(
        session, benchmark, pool, verification, [run for run in counted if run.index in own]
    )


def contest_of(session: Session, verification: Verification) -> Contest:
    """What decides a head-to-head, by its stages so far and by all that its holder has had.

    A verdict keeps the threshold and the spread that it was reached with.
    """
    benchmark = definition(session, verification.benchmark_sha256)
    pairs, told = benchmark.ranking.pairs, told_numbers(verification)
    earlier, spread = verification.earlier_stages, None
    if "class_stdev" in told:
        spread = Spread(told["class_stdev"], told["class_freedom"])
    elif not told and pairs < FEWEST_FOR_OWN_SPREAD and verification.submission is not None:
        hardware_class = verification.submission.system["hardware_class"]
        spread = Spreads(session, benchmark).of(hardware_class)
    return Contest(
        most_pairs=pairs,
        threshold=threshold_of(session, verification),
        earlier=[report for stage in earlier if (report := report_of(stage)) is not None],
        spread=spread,
    )


def told_numbers(verification: Verification) -> dict[str, float]:
    """The figures of a verdict; empty before it."""
    for reason in verification.reasons:
        if reason["code"] == "head_to_head_time":
            return dict(reason["numbers"])
    return {}


def threshold_of(session: Session, verification: Verification) -> float:
    """The p-value below which the challenger wins: that of its verdict, today's before one."""
    told = told_numbers(verification).get("threshold")
    if told is not None:
        return told
    place, tries = count_tries(session, (*verification.earlier_stages, verification)[0])
    return threshold(place=place, tries=tries)


def judged_head_to_head(session: Session, verification: Verification) -> HeadToHead:
    """The result of a head-to-head up to this stage."""
    contest, last = contest_of(session, verification), report_of(verification)
    reports = [*contest.earlier, *([] if last is None else [last])]
    benchmark = benchmark_of(session, verification)
    return judge_head_to_head(pair_runs(benchmark, *reports), contest, benchmark)


def count_tries(session: Session, first: Verification) -> tuple[int, int]:
    """Place of the submitter among all who challenged this holder, and their number of tries.

    It counts up to a head-to-head, of which this is the first stage. Members of one organisation
    are one submitter. Each that started counts, or may still start.
    """
    whose = func.coalesce(-User.organisation_id, User.id)
    started = exists().where(
        Attempt.verification_id == Verification.id, Attempt.started_at.is_not(None)
    )
    query = (
        select(Verification.id, whose)
        .join(Submission, Submission.id == Verification.submission_id)
        .join(User, User.id == Submission.user_id)
        .where(
            Verification.against_id == first.against_id,
            Verification.continues_id.is_(None),
            Verification.created_at <= first.created_at,
            started | Verification.state.in_(OPEN) | (Verification.id == first.id),
        )
        .order_by(Verification.created_at, Verification.id)
    )
    tries: dict[int | None, int] = {}
    for verification_id, submitter in session.execute(query):
        tries[submitter] = tries.get(submitter, 0) + 1
        if verification_id == first.id:
            return list(tries).index(submitter) + 1, tries[submitter]
    return 1, 1

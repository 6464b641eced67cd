"""Head-to-heads of two submissions: request one, train it stage by stage, keep its runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field
from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.verification.head_to_head import (
    FEWEST_FOR_OWN_SPREAD,
    SIDES,
    HeadToHead,
    judge_head_to_head,
    looks_of,
    pair_runs,
    threshold,
    why_no_head_to_head,
)
from finishline.rules.verification.job import Contest
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.errors import ConflictError, ContentError, NotAllowedError, no_such
from server.base.forms import Body, example
from server.base.models import Attempt, Pool, Submission, User, Verification
from server.base.settings import Settings
from server.base.standing import OPEN, Basis, Estimator, claim_of, kind_that_checks, report_of
from server.base.visibility import may_see
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.definitions import definition, rules_that_differ
from server.people.accounts import ORGANISERS
from server.people.audit import Subject, record
from server.people.callers import Caller, viewer_for
from server.submissions.lists import find_submission
from server.submissions.quotas import require_gpu_seconds
from server.verifications.first_place import FirstPlace, may_try, read_first_places
from server.verifications.jobs import Order, queue_job
from server.verifications.pools import Spreads, add_to_pool, timed_runs

JUDGED = ("challenger_faster", "not_proven")
NEAR = 1.1  # Times the holder's time, below which a submitter may ask for a head-to-head.


class HeadToHeadCreate(Body):
    """Request for a head-to-head: two submissions to train in turn, and the reason."""

    model_config = example(challenger="3f9k2m7q1xyz", holder="7wyexdafxm0d", reason="record claim")

    challenger: str = Field(min_length=1, max_length=20)
    holder: str = Field(min_length=1, max_length=20)
    reason: str | None = Field(default=None, max_length=2000)


@dataclass(frozen=True)
class Cost:
    """Pairs and runs of a head-to-head, the seconds of devices that all take, and their basis."""

    pairs: int
    runs: int
    seconds: float
    seconds_a_pair: float
    basis: tuple[Basis, ...]


def cost_of_head_to_head(
    session: Session, benchmark: Benchmark, sides: Sequence[Submission], *, pairs: int
) -> Cost:
    """Estimate a head-to-head by the runs that measured each side, or by their limit."""
    estimates = [
        Estimator(session, kind_that_checks(side)).estimate(side, benchmark, claim_of(side))
        for side in sides
    ]
    a_pair = sum(each.seconds / each.runs * max(each.accelerators, 1) for each in estimates)
    basis = tuple(dict.fromkeys(each.basis for each in estimates))
    return Cost(pairs, 2 * pairs, pairs * a_pair, a_pair, basis)


def ask_for_head_to_head(
    session: Session, settings: Settings, caller: Caller, body: HeadToHeadCreate
) -> Verification:
    """Request a head-to-head; written to the audit log. The holder of the board is the holder.

    An organiser may name any two. A submitter names their own row and the holder of its board, and
    the runs are on their quota.
    """
    challenger, holder = _find_both(session, caller, body)
    place = _first_place_of(session, challenger)
    if place.holder is not None and place.holder.submission_id == challenger.id:
        challenger, holder = holder, challenger
    require_comparable(session, challenger, holder)
    _require_no_other(session, challenger, holder)
    reserved = None
    if not caller.is_organiser:
        _require_own_try(caller, place, challenger, holder)
        reserved = reserve_head_to_head(session, settings, challenger, holder)
    verification = queue_pairs(
        session,
        challenger,
        holder,
        requested_by=caller.user_id,
        reason=body.reason,
        reserved=reserved,
    )
    record(
        session,
        caller,
        "head_to_head.request",
        Subject("verification", verification.id),
        reason=body.reason,
        before=None,
        after={"challenger": challenger.id, "holder": holder.id, "seal": verification.seal},
    )
    return verification


def _first_place_of(session: Session, submission: Submission) -> FirstPlace:
    board = submission.division, submission.system["hardware_class"]
    return read_first_places(session, submission.benchmark_id).get(board) or FirstPlace()


def _require_own_try(
    caller: Caller, place: FirstPlace, challenger: Submission, holder: Submission
) -> None:
    """Raise an error unless a submitter may ask: for their own row, near the holder's time."""
    ask = "Only an organiser can ask for another one."
    if challenger.user_id != caller.user_id:
        raise NotAllowedError(f"Submission {challenger.id} belongs to another user.", hint=ask)
    first, row = place.holder, place.rows.get(challenger.id)
    if first is None or holder.id != first.submission_id:
        named = "has none yet" if first is None else f"has {first.submission_id}"
        raise ConflictError(
            f"Submission {holder.id} is not the holder of its board, which {named}.", hint=ask
        )
    if row is None or not row.may_hold:
        raise ConflictError(f"Submission {challenger.id} has no measured time that may be first.")
    if row.seconds >= NEAR * first.seconds:
        raise ConflictError(
            f"Submission {challenger.id} takes {row.seconds / first.seconds:.2f} times the "
            f"holder's time, expected less than {NEAR:g} times.",
            hint=ask,
        )
    if place.is_busy:
        raise ConflictError(
            "A head-to-head of this board is under way, and a board has one at a time.",
            hint="Ask again when it has ended.",
        )
    if not may_try(place.met.get(challenger.id, ())):
        raise ConflictError("The head-to-heads of these two found nothing.", hint=ask)


def reserve_head_to_head(
    session: Session, settings: Settings, challenger: Submission, holder: Submission
) -> float:
    """Device seconds of the first pairs. Raises UsedUpError or NotAllowedError without room.

    Both sides are on the quota of the challenger's submitter, and organisers have none.
    """
    benchmark = definition(session, challenger.benchmark_sha256)
    pairs = looks_of(benchmark.ranking.pairs)[0]
    wanted = cost_of_head_to_head(session, benchmark, (challenger, holder), pairs=pairs).seconds
    user = challenger.user
    if user.role not in ORGANISERS:
        what = "this head-to-head"
        require_gpu_seconds(session, settings, wanted, user_id=user.id, what=what)
    return wanted


def queue_pairs(
    session: Session,
    challenger: Submission,
    holder: Submission,
    *,
    requested_by: int,
    reason: str | None,
    reserved: float | None = None,
) -> Verification:
    """Draw, seal and queue the first pairs of a head-to-head."""
    pairs = looks_of(definition(session, challenger.benchmark_sha256).ranking.pairs)[0]
    order = Order(
        HEAD_TO_HEAD,
        requested_by,
        reason,
        submission=challenger,
        against=holder,
        wishes={"pairs": pairs},
        reserved=reserved,
    )
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
    head_to_head = judged_head_to_head(session, verification)
    pairs = head_to_head.next_pairs if head_to_head is not None else 1
    reserved = verification.gpu_seconds_reserved
    if reserved is not None:
        reserved *= 2 * pairs / verification.runs
    order = Order(
        HEAD_TO_HEAD,
        verification.requested_by,
        verification.reason,
        submission=challenger,
        against=holder,
        continues=verification,
        wishes={"pairs": pairs},
        reserved=reserved,
    )
    queue_job(session, order)


def _keep_runs(session: Session, verification: Verification, side: Submission) -> None:
    """Add the runs of one side to those that measure its time, without void ones."""
    report, head_to_head = report_of(verification), judged_head_to_head(session, verification)
    pool = None if side.pool_id is None else session.get(Pool, side.pool_id)
    if (
        report is None
        or head_to_head is None
        or pool is None
        or verification.outcome == "inconclusive"
    ):
        return
    benchmark = benchmark_of(session, verification)
    counted = timed_runs(verification, benchmark, report, hardware_class=pool.hardware_class)
    name = SIDES[0] if side is verification.submission else SIDES[1]
    trained = [getattr(pair, name) for pair in head_to_head.pairs[-(verification.runs // 2) :]]
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


def judged_head_to_head(
    session: Session, verification: Verification, report: ReplayReport | None = None
) -> HeadToHead | None:
    """The result of a head-to-head up to this stage; None before its first report."""
    contest = contest_of(session, verification)
    last = report or report_of(verification)
    reports = [*contest.earlier, *([] if last is None else [last])]
    if not reports:
        return None
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


def _find_both(
    session: Session, caller: Caller, body: HeadToHeadCreate
) -> tuple[Submission, Submission]:
    if body.challenger == body.holder:
        raise ContentError(
            f"Submission {body.challenger} cannot have a head-to-head with itself; expected two "
            "submissions."
        )
    found = find_submission(session, body.challenger), find_submission(session, body.holder)
    for one in found:
        if not may_see(viewer_for(caller), one):
            raise no_such("submission", one.id)
    for one in found:
        if one.withdrawn_at is not None:
            raise ConflictError(f"Submission {one.id} is withdrawn and cannot have a head-to-head.")
        if one.retirement is not None:
            raise ConflictError(f"Submission {one.id} is retired: it can't be trained any more.")
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
    unable = why_no_head_to_head(benchmark, claim_of(challenger), claim_of(holder))
    if unable is not None:
        raise ContentError(f"{both} cannot have a head-to-head: {unable}.")
    return benchmark


def _require_no_other(session: Session, challenger: Submission, holder: Submission) -> None:
    ids = (challenger.id, holder.id)
    query = select(Verification.id, Verification.state, Verification.outcome).where(
        Verification.kind == HEAD_TO_HEAD.name,
        Verification.submission_id.in_(ids),
        Verification.against_id.in_(ids),
    )
    for verification_id, state, outcome in session.execute(query):
        if state in OPEN:
            raise ConflictError(
                f"Head-to-head {verification_id} of these two is under way; wait for it or cancel "
                "it."
            )
        if outcome in JUDGED:
            raise ConflictError(
                f"These two had their head-to-head, {verification_id}: {outcome}.",
                hint="A submission meets the same holder once.",
            )

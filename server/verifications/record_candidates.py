"""Record candidates, measured here or published, and the fresh runs that confirm a top rank."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.ranking.evidence import Evidence
from finishline.rules.ranking.ranking import POSSIBLE
from finishline.rules.ranking.records import Contender, measured_history
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.replay_plan import FRESH_RUNS
from finishline.rules.verification.sealed_runs import (
    FIRST,
    HELD_BACK,
    waits_for_others,
    why_fresh_runs,
)
from server.base.board_versions import lock_boards, raise_board_version
from server.base.models import (
    Pool,
    PoolRun,
    PublishedResult,
    Submission,
    Verification,
)
from server.base.models.visibility import ranks
from server.base.standing import OPEN, kind_that_checks
from server.benchmarks.queries import definition
from server.submissions.service import convergence_factor, run_times
from server.verifications.jobs import is_uncalibrated, order_about, queue_job

# A division, and the evidence behind its list: the two are never one list.
List = tuple[str, Evidence]
# Evidence whose own logs hold a record.
OWN_TIMES: tuple[str, ...] = ("published",)
ByList = Mapping[List, Sequence[Contender]]


def contenders(session: Session, benchmark_id: str) -> ByList:
    """Trainings of a board that may hold a record, by division and evidence."""
    found: defaultdict[List, list[Contender]] = defaultdict(list)
    for division, one in _measured(session, benchmark_id):
        found[division, "measured"].append(one)
    for division, one in _published(session, benchmark_id):
        found[division, "published"].append(one)
    return found


def _measured(session: Session, benchmark_id: str) -> list[tuple[str, Contender]]:
    """Earliest submission of each measured configuration, dated by its verdict."""
    statement = (
        select(Submission.id, Submission.division, Pool)
        .join(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == benchmark_id,
            Submission.evidence == "measured",
            Submission.eligible.is_(True),
            Pool.state == "measured",
            Pool.measured_seconds.between(*POSSIBLE["tta_seconds"]),
            ranks(),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    runs = _pool_runs(session, benchmark_id)
    found: dict[str, tuple[str, Contender]] = {}
    for submission_id, division, pool in session.execute(statement):
        if pool.id in found or pool.measured_at is None:
            continue
        own = runs[pool.id]
        contender = Contender(
            submission_id=submission_id,
            date=pool.measured_at.isoformat(),
            tta_seconds=pool.measured_seconds,
            runs=[run.seconds for run in own if run.seconds is not None],
            eligible=True,
            pool=pool.id,
        )
        found[pool.id] = (division, contender)
    return list(found.values())


def _pool_runs(session: Session, benchmark_id: str) -> defaultdict[str, list[PoolRun]]:
    statement = (
        select(PoolRun)
        .join(Pool, Pool.id == PoolRun.pool_id)
        .where(Pool.benchmark_id == benchmark_id, PoolRun.counted.is_(True))
        .order_by(PoolRun.verification_id, PoolRun.index)
    )
    found: defaultdict[str, list[PoolRun]] = defaultdict(list)
    for run in session.scalars(statement):
        found[run.pool_id].append(run)
    return found


def _published(session: Session, benchmark_id: str) -> list[tuple[str, Contender]]:
    which = [
        Submission.benchmark_id == benchmark_id,
        Submission.kind == "train",
        Submission.evidence.in_(OWN_TIMES),
        Submission.tta_seconds.between(*POSSIBLE["tta_seconds"]),
        Submission.eligible.is_(True),
        Submission.status.not_in(("rejected", "inconclusive")),
        ranks(),
    ]
    times = run_times(session, *which)
    columns = (
        Submission.id,
        Submission.division,
        Submission.tta_seconds,
        Submission.result,
        Submission.submitted_at,
        Submission.evidence,
        PublishedResult.published_on,
        PublishedResult.source,
    )
    statement = select(*columns).outerjoin(Submission.published).where(*which)
    return [
        (
            row.division,
            Contender(
                submission_id=row.id,
                date=(row.published_on or row.submitted_at).isoformat(),
                tta_seconds=row.tta_seconds,
                runs=[
                    seconds * convergence_factor(row.tta_seconds, row.result)
                    for seconds in times.get(row.id, ())
                ],
                eligible=True,
            ),
        )
        for row in session.execute(statement)
        if row.source is not None or row.evidence != "published"
    ]


def follow_measurement(session: Session, verification: Verification) -> None:
    """Request fresh runs for a pool that was measured among the first of its division.

    If fresh runs measure nothing, their pool stays unconfirmed until it is measured again.
    """
    pool = None if verification.pool_id is None else session.get(Pool, verification.pool_id)
    if pool is None:
        return
    lock_boards(session, [pool.benchmark_id])
    if verification.fresh:
        _give_up_fresh_runs(session, pool)
        _confirm_waiting(session, pool.benchmark_id, pool.division)
    elif pool.closed_at is None:
        confirm_rank(session, pool, requested_by=verification.requested_by)


def confirm_rank(session: Session, pool: Pool, *, requested_by: int) -> None:
    """Request the fresh runs of an open pool, if its rank needs any that it lacks."""
    if _is_confirmed(session, pool) or fresh_runs_under_way(session, pool) is not None:
        return
    _nominate(session, pool, _read_rivals(session, pool), requested_by=requested_by)


def confirm_risen(session: Session, gone: Pool, *, requested_by: int) -> None:
    """Request fresh runs of the pool that became third of its division when another left."""
    if gone.state != "measured" or gone.measured_seconds is None or earliest_live(session, gone):
        return
    left = contenders(session, gone.benchmark_id).get((gone.division, "measured"), ())
    times = sorted((one.tta_seconds, one.pool) for one in left if one.tta_seconds and one.pool)
    if len(times) <= FIRST:
        return
    seconds, third = times[FIRST - 1]
    if seconds > gone.measured_seconds:
        confirm_rank(session, session.get_one(Pool, third), requested_by=requested_by)


def _give_up_fresh_runs(session: Session, pool: Pool) -> None:
    """Mark a pool unconfirmed if its fresh runs ended without measuring it."""
    if pool.state == "confirming" and pool.closed_at is None:
        _change_state(session, pool, "unconfirmed")


def _confirm_waiting(session: Session, benchmark_id: str, division: str) -> None:
    """Rank the pools that waited for the fresh runs of faster ones, or request their own."""
    statement = (
        select(Pool)
        .where(
            Pool.benchmark_id == benchmark_id,
            Pool.division == division,
            Pool.state == "waiting",
            Pool.closed_at.is_(None),
        )
        .order_by(Pool.measured_seconds, Pool.id)
    )
    rivals = None
    for pool in session.scalars(statement).all():
        rivals = rivals or _read_rivals(session, pool)
        asked = select(Verification.requested_by).where(Verification.pool_id == pool.id)
        latest = asked.order_by(Verification.created_at.desc()).limit(1)
        _nominate(session, pool, rivals, requested_by=session.scalars(latest).one())


def fresh_runs_under_way(session: Session, pool: Pool) -> Verification | None:
    """Verification that trains the fresh runs of a pool; None if none is under way."""
    return session.scalars(
        select(Verification).where(
            Verification.pool_id == pool.id,
            Verification.fresh.is_(True),
            Verification.state.in_(OPEN),
        )
    ).first()


def _is_confirmed(session: Session, pool: Pool) -> bool:
    fresh = select(PoolRun.index).where(PoolRun.pool_id == pool.id, PoolRun.fresh.is_(True))
    return session.scalars(fresh.limit(1)).first() is not None


@dataclass
class Rivals:
    """Times of a division's pools by id: measured ones, and those whose fresh runs are under way.

    `held` names the pools that ever held its record, and `record_seconds` is the latest one's time.
    """

    measured: dict[str, float]
    confirming: dict[str, float]
    held: set[str]
    record_seconds: float | None

    def measured_but(self, pool: Pool) -> list[float]:
        """The measured times of the others."""
        return [seconds for key, seconds in self.measured.items() if key != pool.id]


def _read_rivals(session: Session, pool: Pool) -> Rivals:
    found = contenders(session, pool.benchmark_id).get((pool.division, "measured"), ())
    records = [_of(found, record.submission_id) for record in measured_history(found).records]
    confirming = select(Pool.id, Pool.measured_seconds).where(
        Pool.benchmark_id == pool.benchmark_id,
        Pool.division == pool.division,
        Pool.state == "confirming",
        Pool.closed_at.is_(None),
        Pool.measured_seconds.is_not(None),
    )
    return Rivals(
        measured={one.pool: one.tta_seconds for one in found if one.pool and one.tta_seconds},
        confirming={row.id: row.measured_seconds for row in session.execute(confirming)},
        held={holder.pool for holder in records if holder.pool},
        record_seconds=records[-1].tta_seconds if records else None,
    )


def _nominate(session: Session, pool: Pool, rivals: Rivals, *, requested_by: int) -> None:
    """Hold a pool back until its fresh runs are trained, or rank it if it needs none."""
    submission, seconds = earliest_live(session, pool), pool.measured_seconds
    if submission is None or seconds is None:
        return
    others = rivals.measured_but(pool)
    why = None
    if pool.id not in rivals.held:
        why = why_fresh_runs(seconds, others=others, record_seconds=rivals.record_seconds)
    confirming = list(rivals.confirming.values())
    if why is None:
        rivals.measured[pool.id] = seconds
        if pool.state in HELD_BACK:
            _change_state(session, pool, "measured")
    elif is_uncalibrated(session, submission):
        _change_state(session, pool, "unconfirmed")
    elif waits_for_others(seconds, others=others, confirming=confirming):
        _change_state(session, pool, "waiting")
    else:
        rivals.confirming[pool.id] = seconds
        ask_for_fresh_runs(
            session, pool, submission, requested_by=requested_by, reason=f"fresh runs: {why}"
        )


def earliest_live(session: Session, pool: Pool) -> Submission | None:
    """Submission that represents a pool on the board."""
    statement = (
        select(Submission)
        .where(
            Submission.pool_id == pool.id,
            Submission.evidence == "measured",
            Submission.eligible.is_(True),
            ranks(),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    return session.scalars(statement).first()


def _of(found: Sequence[Contender], submission_id: str) -> Contender:
    return next(one for one in found if one.submission_id == submission_id)


def ask_for_fresh_runs(
    session: Session, pool: Pool, submission: Submission, *, requested_by: int, reason: str
) -> Verification:
    """Draw and seal the fresh runs of a pool, and queue them; its row is held back until then."""
    runs = definition(session, submission.benchmark_sha256).ranking.confirm_runs
    order = order_about(
        session,
        submission,
        purpose=PURPOSES[kind_that_checks(submission)],
        wishes={FRESH_RUNS: runs},
        requested_by=requested_by,
        reason=reason,
        confirms=pool,
    )
    verification = queue_job(session, order)
    _change_state(session, pool, "confirming")
    return verification


def _change_state(session: Session, pool: Pool, state: str) -> None:
    if pool.state == state:  # Else each row that goes on waiting would be read again.
        return
    pool.state = state
    session.flush()
    for submission_id in session.scalars(
        select(Submission.id).where(Submission.pool_id == pool.id)
    ):
        raise_board_version(session, pool.benchmark_id, submission_id=submission_id)

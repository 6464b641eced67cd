"""Record candidates: trainings measured here, and separately results published by an archive."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased, undefer

from finishline.rules.ranking.evidence import Evidence
from finishline.rules.ranking.ranking import POSSIBLE
from finishline.rules.ranking.records import Contender, RecordDuel
from finishline.rules.verification.duel import P_CHALLENGER, RECORD_PAIRS
from server.base.models import (
    Attempt,
    Pool,
    PoolRun,
    PublishedResult,
    Submission,
    User,
    Verification,
    WorkerRow,
)
from server.base.models.visibility import ranks
from server.benchmarks.queries import definition
from server.submissions.service import convergence_factor, run_times
from server.verifications.workers import is_organisers

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
    runs, duels = _pool_runs(session, benchmark_id), _record_duels(session, benchmark_id)
    found: dict[str, tuple[str, Contender]] = {}
    for submission_id, division, pool in session.execute(statement):
        if pool.id in found or pool.measured_at is None:
            continue
        own = runs[pool.id]
        contender = Contender(
            submission_id=submission_id,
            date=max(pool.measured_at, pool.attested_at or pool.measured_at).isoformat(),
            tta_seconds=pool.measured_seconds,
            runs=[run.seconds for run in own if run.seconds is not None],
            eligible=True,
            fresh=any(run.fresh for run in own),
            pool=pool.id,
            duels=duels[pool.id],
            duels_on=_duels_on(session, pool),
            attested=pool.attested_at is not None,
        )
        found[pool.id] = (division, contender)
    return list(found.values())


def _duels_on(session: Session, pool: Pool) -> str | None:
    """Key of pools that can have a duel: rules and class of worker. None with a fixed stop."""
    if definition(session, pool.benchmark_sha256).reach.name == "fixed_stop":
        return None
    return f"{pool.hardware_class} {pool.benchmark_sha256}"


def _record_duels(session: Session, benchmark_id: str) -> defaultdict[str, list[RecordDuel]]:
    """Finished duels of ten pairs on organisers' workers, by the challenger's pool."""
    challenger, holder = aliased(Submission), aliased(Submission)
    statement = (
        select(
            Verification,
            challenger.pool_id,
            holder.pool_id,
            User.role,
            WorkerRow.confirmed_at,
            WorkerRow.confirmed_by,
        )
        .join(challenger, challenger.id == Verification.submission_id)
        .join(holder, holder.id == Verification.against_id)
        .join(Attempt, Attempt.verification_id == Verification.id)
        .join(WorkerRow, WorkerRow.name == Attempt.worker)
        .outerjoin(User, User.id == WorkerRow.user_id)
        .where(
            Attempt.state == "done",
            challenger.benchmark_id == benchmark_id,
            Verification.kind == "duel",
            Verification.state == "done",
        )
        .options(undefer(Verification.reasons))
        .order_by(Verification.ended_at)
    )
    found: defaultdict[str, list[RecordDuel]] = defaultdict(list)
    for row in session.execute(statement):
        duel, challenging, held = row[:3]
        p_value = p_of_record_duel(duel)
        if p_value is None or duel.ended_at is None or challenging is None or held is None:
            continue
        if not is_organisers(row):
            continue
        date = duel.ended_at.isoformat()
        found[challenging].append(RecordDuel(duel.id, held, date, p_value))
    return found


def p_of_record_duel(duel: Verification) -> float | None:
    """One-sided p-value of a duel that may decide about a record, None of any other.

    Such a duel has ten pairs on the class of worker that both were measured on.
    """
    codes = {reason["code"]: reason["numbers"] for reason in duel.reasons}
    if len(duel.seeds) != 2 * RECORD_PAIRS or "hardware_differs" in codes:
        return None
    p_value: float | None = codes.get("duel_time", {}).get(P_CHALLENGER)
    return p_value


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

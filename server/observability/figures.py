"""What the database says of the whole service: the same from every server process."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Float, cast, extract, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from server.board_versions import board_versions, cached_for_board
from server.database import Database, utc_now
from server.models import Attempt, BenchmarkDefinition, Submission, Verification
from server.notices.deliveries import count_deliveries, overdue_seconds
from server.observability.kept import Kept
from server.observability.queue_figures import Queue, WorkerSeen, read_queues, read_workers
from server.settings import Settings
from server.viewer import ORGANISER

FAILURES = frozenset({"submitter", "rules", "infrastructure", "time_limit"})
SECONDS_PER_DAY = 86_400.0
KEEP_SECONDS = 5.0
LIMIT_SECONDS = 4.0


@dataclass(frozen=True)
class Figures:
    """Counts by label. `attempts` by state and kind of failure, `replays` as count and seconds by
    benchmark, `verdicts` by kind and outcome, `submissions` by kind and whether of an archive,
    `deliveries` by channel and state.
    """

    workers: list[WorkerSeen]
    queues: list[Queue]
    attempts: dict[tuple[str, str], int]
    past_lease_seconds: float
    replays: dict[str, tuple[int, float]]
    verdicts: dict[tuple[str, str], int]
    submissions: dict[tuple[str, bool], int]
    deliveries: dict[tuple[str, str], int]
    delivery_overdue_seconds: float


def keep_figures(database: Database, settings: Settings) -> Kept[Figures]:
    """The figures as scrapes read them: any number of scrapes cost the database one reading."""
    return Kept(
        partial(read_figures, database, alive_seconds=settings.worker_alive_seconds),
        name="figures",
        keep_seconds=KEEP_SECONDS,
        limit_seconds=LIMIT_SECONDS,
    )


def read_figures(database: Database, *, alive_seconds: float) -> Figures:
    """Everything at one moment. Raises what the database raises."""
    now = utc_now()
    with database.read(ORGANISER) as session:
        workers = read_workers(session, now=now, alive_seconds=alive_seconds)
        return Figures(
            workers=workers,
            queues=read_queues(session, workers, now=now),
            attempts=_attempts(session),
            past_lease_seconds=_past_lease_seconds(session, now),
            replays=_replays(session, is_sqlite=database.is_sqlite),
            verdicts=_verdicts(session),
            submissions=_submissions(session),
            deliveries=count_deliveries(session),
            delivery_overdue_seconds=overdue_seconds(session, now=now),
        )


def _attempts(session: Session) -> dict[tuple[str, str], int]:
    kind = Attempt.failure["kind"].as_string().label("failure_kind")
    rows = session.execute(
        select(Attempt.state, kind, func.count()).group_by(Attempt.state, "failure_kind")
    )
    counts: dict[tuple[str, str], int] = {}
    for state, failure, count in rows:
        key = (state, "none" if failure is None else failure if failure in FAILURES else "other")
        counts[key] = counts.get(key, 0) + count
    return counts


def _past_lease_seconds(session: Session, now: datetime) -> float:
    """How long ago the first lease of an attempt under way ran out; 0 if none did."""
    first = session.scalar(
        select(func.min(Attempt.lease_expires_at)).where(Attempt.state == "running")
    )
    return 0.0 if first is None else max((now - first).total_seconds(), 0.0)


def _replays(session: Session, *, is_sqlite: bool) -> dict[str, tuple[int, float]]:
    """Of attempts that ended with a report, from claim to report."""
    rows = session.execute(
        select(
            BenchmarkDefinition.benchmark_id,
            func.count(),
            func.sum(_seconds_taken(is_sqlite=is_sqlite)),
        )
        .join(Verification, Verification.benchmark_sha256 == BenchmarkDefinition.sha256)
        .join(Attempt, Attempt.verification_id == Verification.id)
        .where(Attempt.state == "done", Attempt.started_at.is_not(None))
        .group_by(BenchmarkDefinition.benchmark_id)
    )
    return {benchmark: (count, seconds) for benchmark, count, seconds in rows}


def _seconds_taken(*, is_sqlite: bool) -> ColumnElement[float]:
    if is_sqlite:
        days = func.julianday(Attempt.ended_at) - func.julianday(Attempt.started_at)
        return cast(days * SECONDS_PER_DAY, Float)
    return cast(extract("epoch", Attempt.ended_at - Attempt.started_at), Float)


def _verdicts(session: Session) -> dict[tuple[str, str], int]:
    rows = session.execute(
        select(Verification.kind, Verification.outcome, func.count())
        .where(Verification.outcome.is_not(None))
        .group_by(Verification.kind, Verification.outcome)
    )
    return {(kind, str(outcome)): count for kind, outcome, count in rows}


def _submissions(session: Session) -> dict[tuple[str, bool], int]:
    """By kind and archive, counted again of those benchmarks alone that have changed."""
    counts: Counter[tuple[str, bool]] = Counter()
    for benchmark_id, version in board_versions(session).items():
        count = partial(_submissions_of, session, benchmark_id)
        counts.update(cached_for_board(session, benchmark_id, "kinds", count, version=version))
    return dict(counts)


def _submissions_of(session: Session, benchmark_id: str) -> dict[tuple[str, bool], int]:
    of_both = (Submission.kind, Submission.archive)
    which = Submission.benchmark_id == benchmark_id
    rows = session.execute(select(*of_both, func.count()).where(which).group_by(*of_both))
    return {(kind, archive): count for kind, archive, count in rows}

"""Figures of the whole service, from the database: the same from every server process."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Float, cast, extract, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from server.base.database import Database, utc_now
from server.base.models import Attempt, BenchmarkDefinition, Submission, Verification, WorkerRow
from server.base.settings import Settings
from server.base.viewer import ORGANISER
from server.notices.outbox import count_deliveries, overdue_seconds
from server.operations.background_value import BackgroundValue
from server.verifications.holds import read_pause
from server.verifications.workers import PAUSED

ANY_CLASS = "any"
TAKES_WORK = ("idle", "busy")


@dataclass(frozen=True)
class WorkerSeen:
    """A worker's hardware class and how it is: idle, busy, stopping, drifted, held,
    unconfirmed or gone.

    A worker is held where it is "paused", itself or with everything.
    """

    hardware_class: str
    state: str


@dataclass(frozen=True)
class Queue:
    """Attempts that wait for one hardware class, or for any; ages are in seconds.

    `beside_free_seconds` is the age of the oldest while a worker that could take it is idle, else
    0: an attempt that is then not taken within a minute is stuck.
    """

    hardware_class: str
    attempts: int
    oldest_seconds: float
    beside_free_seconds: float


def read_workers(session: Session, *, now: datetime, alive_seconds: float) -> list[WorkerSeen]:
    """Every worker that ever said hello."""
    since = now - timedelta(seconds=alive_seconds)
    rows = session.execute(
        select(
            WorkerRow.hardware_class,
            WorkerRow.state,
            WorkerRow.last_seen_at < since,
            WorkerRow.drift.is_not(None),
            WorkerRow.held,
            WorkerRow.confirmed_at.is_(None),
        )
    )
    paused = None if read_pause(session) is None else PAUSED
    return [
        WorkerSeen(
            name,
            _state(
                "unconfirmed" if unconfirmed and state != "stopping" else state,
                gone=gone,
                drifted=drifted,
                held=held or paused,
            ),
        )
        for name, state, gone, drifted, held, unconfirmed in rows
    ]


def _state(state: str, *, gone: bool, drifted: bool, held: str | None) -> str:
    if gone:
        return "gone"
    if state == "stopping":
        return state
    return held or ("drifted" if drifted else state)


def read_queues(
    session: Session, workers: Sequence[WorkerSeen], *, now: datetime | None = None
) -> list[Queue]:
    """The queue of every class that some worker has or had, and of all workers.

    An attempt for a class that no worker ever had waits for any: submitters make up endless names.
    """
    now = now or utc_now()
    waiting: dict[str, tuple[int, datetime]] = {}
    known = {worker.hardware_class for worker in workers}
    for wanted, attempts, oldest in _queued_by_class(session):
        name = wanted if wanted in known else ANY_CLASS
        count, earliest = waiting.get(name, (0, oldest))
        waiting[name] = (count + attempts, min(earliest, oldest))
    return [
        _queue(name, *waiting.get(name, (0, now)), now=now, free=is_free(name, workers))
        for name in sorted(known | {ANY_CLASS})
    ]


def _queued_by_class(session: Session) -> Sequence[tuple[str | None, int, datetime]]:
    rows = session.execute(
        select(Attempt.hardware_class, func.count(), func.min(Attempt.created_at))
        .where(Attempt.state == "queued")
        .group_by(Attempt.hardware_class)
    )
    return [(row[0], row[1], row[2]) for row in rows]


def is_free(hardware_class: str, workers: Sequence[WorkerSeen]) -> bool:
    """Whether a worker that would be sent this is idle: one of its class, if any of it works."""
    fit = [worker for worker in workers if worker.state in TAKES_WORK]
    same = [worker for worker in fit if worker.hardware_class == hardware_class]
    return any(worker.state == "idle" for worker in same or fit)


def _queue(name: str, attempts: int, oldest: datetime, *, now: datetime, free: bool) -> Queue:
    age = max((now - oldest).total_seconds(), 0.0)
    return Queue(name, attempts, age, age if free else 0.0)


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


class CachedFigures(BackgroundValue[Figures]):
    """The figures as scrapes read them: any number of scrapes cost the database one reading.

    `are_away` is whether the last scrape went without them.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__(
            partial(read_figures, database, alive_seconds=settings.worker_alive_seconds),
            name="figures",
            keep_seconds=KEEP_SECONDS,
            limit_seconds=LIMIT_SECONDS,
        )
        self.are_away = False


def read_figures(database: Database, *, alive_seconds: float) -> Figures:
    """Everything at one moment. Raises errors of the database."""
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
    """Seconds since the first lease of an attempt under way ran out; 0 if none did."""
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
    by = (Submission.kind, Submission.evidence)
    counts: Counter[tuple[str, bool]] = Counter()
    for kind, evidence, count in session.execute(select(*by, func.count()).group_by(*by)):
        counts[kind, evidence == "published"] += count
    return counts

"""Figures of the whole service, from the database: the same from every server process."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import product
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from sqlalchemy import Float, Select, case, cast, extract, func, select
from sqlalchemy.orm import Session

from server.base.database import Database, utc_now
from server.base.fleet import Fleet, state_word
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Message,
    Receiver,
    Submission,
    Verification,
    WorkerRow,
)
from server.base.visibility import ORGANISER
from server.notices.outbox import overdue_seconds
from server.operations.background_value import BackgroundValue

ANY_CLASS = "any"


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


def state_of(fleet: Fleet, worker: WorkerRow) -> str:
    """How a worker is: idle, busy, stopping, drifted, paused, unconfirmed or gone.

    It is paused where it is paused itself, or everything is.
    """
    if worker.last_seen_at < fleet.since:
        return "gone"
    word = state_word(worker)
    return "paused" if fleet.pause and word != "stopping" else word


def read_queues(session: Session, fleet: Fleet) -> list[Queue]:
    """The queue of every class that some worker has or had, and of all workers.

    An attempt for a class that no worker ever had waits for any: submitters make up endless names.
    """
    now = utc_now()
    query = (
        select(Attempt.hardware_class, func.count(), func.min(Attempt.created_at))
        .where(Attempt.state == "queued")
        .group_by(Attempt.hardware_class)
    )
    waiting: dict[str, tuple[int, datetime]] = {}
    known = {worker.hardware_class for worker in fleet.workers}
    for wanted, attempts, oldest in session.execute(query):
        name = wanted if wanted in known else ANY_CLASS
        count, earliest = waiting.get(name, (0, oldest))
        waiting[name] = (count + attempts, min(earliest, oldest))
    queues = []
    for name in sorted(known | {ANY_CLASS}):
        attempts, oldest = waiting.get(name, (0, now))
        age = max((now - oldest).total_seconds(), 0.0)
        queues.append(Queue(name, attempts, age, age if is_free(name, fleet) else 0.0))
    return queues


def is_free(hardware_class: str, fleet: Fleet) -> bool:
    """Whether a worker that is given work and may take this is idle."""
    able = set(fleet.takers(hardware_class)) & set(fleet.open)
    return any(worker.state == "idle" for worker in able)


FAILURES = frozenset({"submitter", "rules", "infrastructure", "time_limit"})
OPEN = ("queued", "running")
DELIVERIES = dict.fromkeys(product(("webhook", "mail"), ("waiting", "delivered", "failed")), 0)
SECONDS_PER_DAY = 86_400.0
KEEP_SECONDS = 5.0
LIMIT_SECONDS = 4.0
Counts = Mapping[Any, float]


class CachedFigures(BackgroundValue[list[Metric]]):
    """The figures as scrapes read them: any number of scrapes cost the database one reading.

    `are_away` is whether the last scrape went without them.
    """

    def __init__(self, database: Database) -> None:
        ask = partial(read_figures, database)
        super().__init__(ask, keep_seconds=KEEP_SECONDS, limit_seconds=LIMIT_SECONDS)
        self.are_away = False


def family(name: str, text: str, values: float | Counts, *labels: str) -> Metric:
    """A metric: one value, or one for each tuple of labels. It counts up if its name says so."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    made = kind(f"finishline_{name}", text, labels=labels)
    counts = values if isinstance(values, Mapping) else {(): values}
    for each, value in sorted(counts.items()):
        made.add_metric(each, value)
    return made


def _counted(session: Session, *by: Any, where: Any = True) -> Counts:
    """Numbers of rows by the values of some columns."""
    named = [column.label(f"by_{number}") for number, column in enumerate(by)]
    query: Select[Any] = select(*named, func.count()).where(where).group_by(*named)
    return {tuple(labels): count for *labels, count in session.execute(query)}


# The words and labels of each figure, by its name. One that only grows ends in _total.
CLASS = ("hardware_class",)
FIGURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "queued_attempts": ("Attempts that wait for a worker of a hardware class, or any.", CLASS),
    "oldest_queued_attempt_age_seconds": ("Age of the oldest that waits, else 0.", CLASS),
    "queued_beside_free_worker_age_seconds": (
        "Age of the oldest that waits while a suitable worker is idle, else 0.", CLASS
    ),
    "workers": ("Workers by state: idle and busy ones alone get work.", (*CLASS, "state")),
    "running_attempts": ("Attempts under way.", ()),
    "running_attempt_past_lease_seconds": (
        "How long ago the first lease of an attempt under way ran out, else 0.", ()
    ),
    "attempts_ended_total": ("Attempts that ended, by kind of failure.", ("state", "failure")),
    "leases_lost_total": ("Attempts whose lease ran out because the worker went offline.", ()),
    "verdicts_total": ("Verifications that ended in an outcome.", ("kind", "outcome")),
    "submissions_total": (
        "Submissions; those of an archive were published elsewhere.", ("kind", "archive")
    ),
    "deliveries": ("Messages of the last 30 days.", ("channel", "state")),
    "delivery_overdue_seconds": ("Delay of the most overdue retry of a message, else 0.", ()),
}  # fmt: skip


def read_figures(database: Database) -> list[Metric]:
    """Every figure of one moment. Raises errors of the database."""
    now = utc_now()
    kind = Attempt.failure["kind"].as_string()
    failure = case((kind.is_(None), "none"), (kind.in_(FAILURES), kind), else_="other")
    archive = case((Submission.evidence == "published", "true"), else_="false")
    channel = select(Receiver.channel).where(Receiver.id == Message.receiver_id).scalar_subquery()
    ended, judged = Attempt.state.not_in(OPEN), Verification.outcome.is_not(None)
    running = select(func.min(Attempt.lease_expires_at)).where(Attempt.state == "running")
    with database.read(ORGANISER) as session:
        fleet = Fleet.read(session)
        queues = {(queue.hardware_class,): queue for queue in read_queues(session, fleet)}
        attempts = _counted(session, Attempt.state)
        first = session.scalar(running)
        values: dict[str, float | Counts] = {
            "queued_attempts": {name: each.attempts for name, each in queues.items()},
            "oldest_queued_attempt_age_seconds": {
                name: each.oldest_seconds for name, each in queues.items()
            },
            "queued_beside_free_worker_age_seconds": {
                name: each.beside_free_seconds for name, each in queues.items()
            },
            "workers": Counter(
                (each.hardware_class, state_of(fleet, each)) for each in fleet.workers
            ),
            "running_attempts": attempts.get(("running",), 0),
            "running_attempt_past_lease_seconds": (
                0.0 if first is None else max((now - first).total_seconds(), 0.0)
            ),
            "attempts_ended_total": _counted(session, Attempt.state, failure, where=ended),
            "leases_lost_total": attempts.get(("lost",), 0),
            "verdicts_total": _counted(
                session, Verification.kind, Verification.outcome, where=judged
            ),
            "submissions_total": _counted(session, Submission.kind, archive),
            "deliveries": {**DELIVERIES, **_counted(session, channel, Message.state)},
            "delivery_overdue_seconds": overdue_seconds(session, now=now),
        }
        families = [
            family(name, text, values[name], *labels) for name, (text, labels) in FIGURES.items()
        ]
        return [*families, _of_replays(session, is_sqlite=database.is_sqlite)]


def _of_replays(session: Session, *, is_sqlite: bool) -> Metric:
    if is_sqlite:
        days = func.julianday(Attempt.ended_at) - func.julianday(Attempt.started_at)
        taken = cast(days * SECONDS_PER_DAY, Float)
    else:
        taken = cast(extract("epoch", Attempt.ended_at - Attempt.started_at), Float)
    query = (
        select(BenchmarkDefinition.benchmark_id, func.count(), func.sum(taken))
        .join(Verification, Verification.benchmark_sha256 == BenchmarkDefinition.sha256)
        .join(Attempt, Attempt.verification_id == Verification.id)
        .where(Attempt.state == "done", Attempt.started_at.is_not(None))
        .group_by(BenchmarkDefinition.benchmark_id)
    )
    family = SummaryMetricFamily(
        "finishline_replay_seconds",
        "From claim to report of attempts that ended with one.",
        labels=("benchmark",),
    )
    for benchmark, count, seconds in session.execute(query):
        family.add_metric((benchmark,), count_value=count, sum_value=seconds)
    return family

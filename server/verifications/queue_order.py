"""Choose the messages to send: one for each free worker, in fair order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, Connection, func, select, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.latency import FEWEST_ITEMS
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.messages import (
    ControlPoint,
    LatencyOrder,
    ReplayJob,
    TargetSpec,
    Training,
    queue_of,
)
from server.base.database import insert_missing, utc_now
from server.base.models import Attempt, QueueRow
from server.base.standing import claim_of, measures, run_limit_seconds
from server.benchmarks.calibrations import benchmark_of
from server.verifications.fair_queue import FairQueue, Turns, Waiting
from server.verifications.free_workers import (
    FreeWorkers,
    able_to_train,
    barred_owners,
    draw_apart,
    forget_lost_messages,
    read_free_workers,
    waiting_apart,
)
from server.verifications.jobs import trainings_of
from server.verifications.queries import find_attempt


def build_job(
    benchmark: Benchmark,
    claim: Claim | None,
    trainings: Sequence[Training],
    *,
    attempt_id: str,
    verification_id: str,
    submission_id: str | None,
    purpose: str = "replay",
    control_points: Sequence[ControlPoint] = (),
) -> ReplayJob:
    """The message for a worker.

    Settings are completed by the reference's own. Without a claim its division is the benchmark's
    first. Raises RuleError if a latency is to be measured and the benchmark has no protocol.
    """
    target, defaults, protocol = benchmark.target, benchmark.defaults(), benchmark.latency
    order = None
    if measures(trainings, "latency"):
        if protocol is None:
            raise RuleError(
                "no latency protocol", file=benchmark.benchmark_id, expected="[latency]"
            )
        order = LatencyOrder(
            items=protocol.items,
            warmup_items=protocol.warmup_items,
            output_tolerance=protocol.output_tolerance,
            fewest_items=FEWEST_ITEMS,
            enough_seconds=protocol.enough_seconds,
            most_seconds=protocol.most_seconds,
        )
    return ReplayJob(
        attempt_id=attempt_id,
        verification_id=verification_id,
        submission_id=submission_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        trainings=[
            # The data's nonce comes with the lease.
            replace(each, data_nonce=None)
            if each.in_box
            else replace(each, settings=dict(defaults) | each.settings)
            for each in trainings
        ],
        target=TargetSpec(
            metric=target.metric,
            value=target.value,
            direction=target.direction,
            evaluations_in_a_row=benchmark.reach.evaluations,
            fixed_stop=benchmark.reach.name == "fixed_stop",
        ),
        clock=benchmark.clock.name,
        division=claim.division if claim is not None else benchmark.divisions[0],
        control_points=list(control_points),
        run_limit_seconds=run_limit_seconds(benchmark, trainings),
        purpose=purpose,
        latency=order,
    )


def read_turns(session: Session, hardware_class: str) -> Turns:
    """Read the turns of a hardware class's queue; empty if it has not served yet."""
    row = session.execute(
        select(QueueRow.turn, QueueRow.organisers_in_a_row, QueueRow.turns).where(
            QueueRow.hardware_class == hardware_class
        )
    ).first()
    if row is None:
        return Turns()
    last = {(by_organiser, submitter): turn for by_organiser, submitter, turn in row.turns}
    return Turns(last, count=row.turn, organisers_in_a_row=row.organisers_in_a_row)


def keep_turns(session: Session, hardware_class: str, turns: Turns) -> None:
    """Store the turns of a queue."""
    insert_missing(session, QueueRow, hardware_class=hardware_class)
    last = [(*sharer, turn) for sharer, turn in turns.last.items()]
    session.execute(
        update(QueueRow)
        .where(QueueRow.hardware_class == hardware_class)
        .values(turn=turns.count, organisers_in_a_row=turns.organisers_in_a_row, turns=last)
    )


RESEND_SECONDS = (5.0, 10.0, 20.0)
LOOKED_AT = 10  # Of the attempts of one submitter in one queue.


@dataclass(frozen=True)
class Sending:
    """Job, and the queue it goes to unless its worker asks the server itself for it."""

    job: ReplayJob
    queue: str
    is_asked_for: bool = False


@dataclass(frozen=True)
class Head:
    """Time of the oldest attempt of one submitter for one hardware class that was never sent."""

    hardware_class: str | None
    by_organiser: bool
    submitter_id: int
    asked_at: datetime

    def waiting(self, name: str) -> Waiting:
        """Entry for the fair queue."""
        return Waiting(name, self.submitter_id, self.by_organiser, self.asked_at)


def anything_to_send(session: Session | Connection, *, alive_seconds: float) -> bool:
    """Whether a worker is free and an attempt is due."""
    now = utc_now()
    idle = read_free_workers(session, alive_seconds=alive_seconds, now=now)
    if not idle.free:
        return False
    due = select(Attempt.id).where(Attempt.state == "queued", Attempt.send_after <= now).limit(1)
    return session.scalar(due) is not None


def take_due(session: Session, *, alive_seconds: float) -> list[Sending]:
    """Mark an attempt as sent for each free worker: lost messages first, then by turns."""
    now = utc_now()
    idle = read_free_workers(session, alive_seconds=alive_seconds, now=now)
    forget_lost_messages(session, now)
    chosen = _send_apart(session, idle, now) + _resend_lost(session, idle, now)
    heads = _heads(session) if idle.free else []
    for hardware_class in sorted(idle.free):
        chosen += _by_turns(session, idle, hardware_class, heads, now)
    sendings = [build_sending(session, attempt_id, sent_to) for attempt_id, sent_to in chosen]
    return [
        replace(one, is_asked_for=to in idle.asking)
        for one, (_, to) in zip(sendings, chosen, strict=True)
    ]


def _send_apart(session: Session, idle: FreeWorkers, now: datetime) -> list[tuple[str, str]]:
    """Send cross-checks, which hold up verdicts, before all others."""
    chosen = []
    for attempt in waiting_apart(session, now):
        sent_to = draw_apart(session, idle, attempt)
        if sent_to is not None and _mark(
            session, attempt.id, sends=attempt.sends, sent_to=sent_to, now=now
        ):
            chosen.append((attempt.id, sent_to))
    return chosen


def _resend_lost(session: Session, idle: FreeWorkers, now: datetime) -> list[tuple[str, str]]:
    """Resend attempts that were not claimed in time. They had their turn, so they go first."""
    rows = session.execute(
        select(Attempt.id, Attempt.hardware_class, Attempt.sends)
        .where(Attempt.state == "queued", Attempt.sent_to > "", Attempt.send_after <= now)
        .order_by(Attempt.asked_at, Attempt.id)
    ).all()
    chosen = []
    for row in rows:
        able = [
            name
            for name, free in sorted(idle.free.items())
            if free and idle.may_take(name, row.hardware_class)
        ]
        for hardware_class in able[:1]:
            sent_to = idle.draw(
                hardware_class,
                partial(barred_owners, session, row.id),
                may_train=able_to_train(session, idle, row.id),
            )
            if sent_to and _mark(session, row.id, sends=row.sends, sent_to=sent_to, now=now):
                chosen.append((row.id, sent_to))
    return chosen


def _by_turns(
    session: Session, idle: FreeWorkers, hardware_class: str, heads: Sequence[Head], now: datetime
) -> list[tuple[str, str]]:
    able = [head for head in heads if idle.may_take(hardware_class, head.hardware_class)]
    waiting = (head.waiting(str(place)) for place, head in enumerate(able))
    queue = FairQueue(waiting, read_turns(session, hardware_class))
    chosen: list[tuple[str, str]] = []
    while idle.free[hardware_class] and (one := queue.take()) is not None:
        head = able[int(one.attempt_id)]
        drawn = _draw(session, idle, hardware_class, _oldest(session, head))
        if drawn is None:  # No free worker may take any of theirs.
            continue
        if _mark(session, drawn[0], sends=0, sent_to=drawn[1], now=now):
            chosen.append(drawn)
        following = _oldest(session, head)
        if following:
            queue.add(replace(one, asked_at=following[0][1]))
    if chosen:
        keep_turns(session, hardware_class, queue.turns())
    return chosen


def _draw(
    session: Session,
    idle: FreeWorkers,
    hardware_class: str,
    oldest: Sequence[tuple[str, datetime]],
) -> tuple[str, str] | None:
    for attempt_id, _ in oldest:
        barred = partial(barred_owners, session, attempt_id)
        able = able_to_train(session, idle, attempt_id)
        if (sent_to := idle.draw(hardware_class, barred, may_train=able)) is not None:
            return attempt_id, sent_to
    return None


def _heads(session: Session) -> list[Head]:
    """Oldest attempt of each submitter in each queue; one pass over an index."""
    key = (Attempt.hardware_class, Attempt.by_organiser, Attempt.submitter_id)
    rows = session.execute(
        select(*key, func.min(Attempt.asked_at)).where(*_never_sent()).group_by(*key)
    )
    return [Head(wanted, bool(asked), whose, oldest) for wanted, asked, whose, oldest in rows]


def _oldest(session: Session, head: Head) -> list[tuple[str, datetime]]:
    """First few attempts of a submitter in a queue: if one has to wait, the next may start."""
    rows = session.execute(
        select(Attempt.id, Attempt.asked_at)
        .where(
            *_never_sent(),
            Attempt.hardware_class == head.hardware_class,
            Attempt.by_organiser == head.by_organiser,
            Attempt.submitter_id == head.submitter_id,
        )
        .order_by(Attempt.asked_at, Attempt.id)
        .limit(LOOKED_AT)
    )
    return [(row.id, row.asked_at) for row in rows]


def _never_sent() -> tuple[ColumnElement[bool], ...]:
    return (Attempt.state == "queued", Attempt.sent_to.is_(None))


def _mark(session: Session, attempt_id: str, *, sends: int, sent_to: str, now: datetime) -> bool:
    """Mark an attempt as sent; False if it is claimed, or another server sent it."""
    pause = RESEND_SECONDS[min(sends, len(RESEND_SECONDS) - 1)]
    won = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sends == sends)
        .values(sends=sends + 1, sent_to=sent_to, send_after=now + timedelta(seconds=pause))
        .returning(Attempt.id)
    ).first()
    return won is not None


def build_sending(session: Session, attempt_id: str, sent_to: str) -> Sending:
    """Build the message of an attempt to the worker that was drawn for it."""
    attempt = find_attempt(session, attempt_id)
    verification = attempt.verification
    submission = verification.submission
    job = build_job(
        benchmark_of(session, verification),
        claim_of(submission) if submission is not None else None,
        trainings_of(verification),
        attempt_id=attempt.id,
        verification_id=verification.id,
        submission_id=verification.submission_id,
        purpose=verification.kind,
        control_points=[ControlPoint(**point) for point in verification.control_points],
    )
    return Sending(job=job, queue=queue_of(sent_to))

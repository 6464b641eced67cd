"""The queue: the order of attempts for free workers, when they may start, and why they wait.

1. Independent reruns go first, because verdicts wait for them. Attempts left by their drawn worker
   follow.
2. Organisers' requests go before submitters' attempts. While any of the latter waits, at most
   ORGANISERS_IN_A_ROW of the former go in a row.
3. Within each of the two, submitters take turns. Next is a submitter without a turn, then the
   submitter with the longest time since a turn on this hardware class. So a thousand attempts of
   one submitter delay another's first by at most one attempt.
4. A submitter's oldest attempt goes first. Attempts without an able free worker are passed over.

A turn is the moment when a worker was drawn. The attempt stores it.
"""

import secrets
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from sqlalchemy import ColumnElement, case, func, or_, select, true, update
from sqlalchemy.orm import Session, aliased

from finishline.api.schema import Schema
from finishline.rules.text import count_text
from finishline.rules.verification.purposes import HEAD_TO_HEAD, PURPOSES
from server.base.database import utc_now
from server.base.fleet import Fleet, read_pause
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    ReplayEventRow,
    Submission,
    TrainingPackage,
    User,
    Verification,
    WorkerRow,
)
from server.base.standing import OPEN
from server.base.visibility import ORGANISER, seeing
from server.people.declared import Routes
from server.submissions.code import takes_packages_of

FAILED = ("failed", "lost")
ORGANISERS_IN_A_ROW = 3
DRAWN_AGAIN_AFTER = timedelta(seconds=5)  # Without a lease: its message may be lost.
REMEMBERED = timedelta(days=7)  # An older turn no longer counts.
NEVER = datetime.min.replace(tzinfo=UTC)
Sharer = tuple[bool, int]


def sharer_of(one: Any) -> Sharer:
    """Return who takes a turn for an attempt. Organisers' requests spare the submitter's turns."""
    return one.by_organiser, one.submitter_id


@dataclass(frozen=True)
class Turns:
    """Each sharer's last turn on a class, and the organisers' attempts since a submitter's own."""

    last: Mapping[Sharer, datetime] = field(default_factory=dict)
    organisers_in_a_row: int = 0

    def after(self, one: Any, now: datetime) -> "Turns":
        """Add the turn of an attempt."""
        in_a_row = self.organisers_in_a_row + 1 if one.by_organiser else 0
        return Turns({**self.last, sharer_of(one): now}, in_a_row)


NO_TURNS = Turns()


def fair_order(waiting: Iterable[Any], turns: Turns = NO_TURNS) -> list[Any]:
    """Order the waiting attempts as one worker would start them."""
    own: defaultdict[Sharer, list[Any]] = defaultdict(list)
    for one in sorted(waiting, key=lambda one: (one.asked_at, one.id)):
        own[sharer_of(one)].append(one)
    lanes: dict[bool, list[tuple[Any, Any]]] = {True: [], False: []}
    for sharer, ones in own.items():
        turn = (turns.last.get(sharer, NEVER), ones[0].asked_at, ones[0].id)
        lanes[sharer[0]] += [((number, *turn), one) for number, one in enumerate(ones)]
    organisers, submitters = (
        deque(one for _, one in sorted(lanes[lane], key=lambda each: each[0]))
        for lane in (True, False)
    )
    order: list[Any] = []
    in_a_row = turns.organisers_in_a_row
    while organisers or submitters:
        are_next = organisers and not (submitters and in_a_row >= ORGANISERS_IN_A_ROW)
        order.append((organisers if are_next else submitters).popleft())
        in_a_row = in_a_row + 1 if are_next else 0
    return order


def read_turns(session: Session, hardware_class: str | None) -> Turns:
    """Read the turns of a hardware class."""
    workers = select(WorkerRow.name).where(WorkerRow.hardware_class == hardware_class)
    drawn = (
        Attempt.sent_to.in_(workers),
        Attempt.send_after > utc_now() - REMEMBERED,
        ~Attempt.is_apart,
    )
    sharer = (Attempt.by_organiser, Attempt.submitter_id)
    last = session.execute(
        select(*sharer, func.max(Attempt.send_after)).where(*drawn).group_by(*sharer)
    )
    latest = session.scalars(
        select(Attempt.by_organiser)
        .where(*drawn)
        .order_by(Attempt.send_after.desc())
        .limit(ORGANISERS_IN_A_ROW)
    ).all()
    in_a_row = latest.index(False) if False in latest else len(latest)
    return Turns({(lane, submitter): turn for lane, submitter, turn in last}, in_a_row)


@dataclass(frozen=True)
class Drawn:
    """An attempt and the worker drawn for it. A polling worker needs no message."""

    attempt_id: str
    worker: str
    polls: bool


def anything_to_send(session: Session) -> bool:
    """Check whether a worker is free and an attempt is due."""
    due = (Attempt.state == "queued", Attempt.send_after <= utc_now())
    if read_pause(session) or session.scalar(select(Attempt.id).where(*due).limit(1)) is None:
        return False
    return bool(Choice(session, Fleet.read(session)).free)


def take_due(session: Session) -> list[Drawn]:
    """Draw an attempt for each free worker, and store the worker with the attempt."""
    choice = Choice(session, Fleet.read(session))
    waiting = read_waiting(session, each=len(choice.free))
    first = [row for row in waiting if row.is_apart or row.sent_to is not None]
    for row in sorted(first, key=lambda row: (not row.is_apart, row.asked_at, row.id)):
        choice.take(row, choice.hands(row))
    rest = [row for row in waiting if not row.is_apart and row.sent_to is None]
    for hardware_class in sorted({worker.hardware_class for worker in choice.free.values()}):
        _take_by_turns(choice, hardware_class, rest)
    return choice.drawn


def _take_by_turns(choice: "Choice", hardware_class: str, waiting: list[Any]) -> None:
    turns = read_turns(choice.session, hardware_class)
    while True:
        hands = {row: choice.hands(row, hardware_class) for row in waiting}
        order = fair_order((row for row in waiting if hands[row]), turns)
        if not order:
            return
        choice.take(order[0], hands[order[0]])
        waiting.remove(order[0])
        turns = turns.after(order[0], utc_now())


class Choice:
    """Free workers of one moment, the attempts they may take, and the draws so far."""

    def __init__(self, session: Session, fleet: Fleet) -> None:
        self.session, self.fleet = session, fleet
        taken = _taken(session) if fleet.open else set()
        self.free = {
            worker.name: worker
            for worker in fleet.open
            if worker.state == "idle" and worker.name not in taken
        }
        self.drawn: list[Drawn] = []
        self._willing: dict[tuple[Any, ...], list[WorkerRow]] = {}

    def hands(self, row: Any, hardware_class: str | None = None) -> list[WorkerRow]:
        """List the free workers for an attempt, of one class or of any."""
        needs = tuple(getattr(row, each.key) for each in DECIDING)
        if needs not in self._willing:
            self._willing[needs] = self.willing(row)
        return [
            worker
            for worker in self._willing[needs]
            if worker.name in self.free and hardware_class in (None, worker.hardware_class)
        ]

    def take(self, row: Any, hands: Sequence[WorkerRow]) -> None:
        """Draw a worker by chance, so that nobody can foresee it."""
        if not hands:
            return
        worker = secrets.choice(hands)
        del self.free[worker.name]
        self.session.execute(
            update(Attempt)
            .where(Attempt.id == row.id)
            .values(sent_to=worker.name, send_after=utc_now() + DRAWN_AGAIN_AFTER)
        )
        self.drawn.append(Drawn(row.id, worker.name, worker.polls))

    def willing(self, row: Any) -> list[WorkerRow]:
        """List able workers, without barred owners' workers if another owner has one.

        A paused worker may not come back, so no attempt waits for its owner.
        """
        able = able_workers(self.session, self.fleet, row)
        if row.rerun is not None:
            rerun = self.session.get_one(Attempt, row.rerun).verification
            never = owners_at(self.session, rerun.checks_id, seeds=rerun.seeds)
            able = [worker for worker in able if worker.user_id not in never]
        owners = {worker.user_id for worker in able if worker.user_id and not worker.held}
        barred = self._barred(row, owners) if len(owners) > 1 else set()
        return [worker for worker in able if owners <= barred or worker.user_id not in barred]

    def _barred(self, row: Any, owners: set[int]) -> set[int]:
        """Return the owners, among these, with a failed attempt at it or a rival submission.

        Members of an organisation count together. If organisers have a worker for its code, all
        others are barred.
        """
        failed = select(WorkerRow.user_id).join(Attempt, Attempt.worker == WorkerRow.name)
        of_it = (Attempt.verification_id == row.retried, Attempt.state.in_(FAILED))
        barred = owners.intersection(self.session.scalars(failed.where(*of_it)))
        if PURPOSES[row.kind].in_box:
            trusted = {
                worker.user_id
                for worker in self.fleet.workers
                if worker.user_id in owners - barred and self.fleet.is_organisers(worker)
            }
            barred |= owners - trusted if trusted else set()
        return barred | self._interested(row.benchmark_id, owners - barred)

    def _interested(self, benchmark_id: str | None, owners: set[int]) -> set[int]:
        if benchmark_id is None or not owners:
            return set()
        groups = groups_of(self.session, owners)
        rivals = set(
            self.session.scalars(
                select(Submission.user_id).where(
                    Submission.user_id.in_(set().union(*groups.values())),
                    Submission.benchmark_id == benchmark_id,
                    Submission.withdrawn_at.is_(None),
                )
            )
        )
        return {owner for owner, group in groups.items() if group & rivals}


def able_workers(
    session: Session, fleet: Fleet, row: Any, among: Sequence[WorkerRow] | None = None
) -> list[WorkerRow]:
    """List the workers with the class, sandbox and environments for an attempt.

    A head-to-head needs an organisers' worker of its class. A worker's owner can read the code that
    it trains, so code under embargo needs an organisers' worker too.
    """
    workers = fleet.fit if among is None else among
    environments = {row.environment, row.other_environment} - {None}
    if row.kind != HEAD_TO_HEAD.name and row.rerun is None and not environments:
        return fleet.takers(row.hardware_class, workers)
    authors = session.scalars(
        select(User).where(User.id.in_({row.author, row.other_author} - {None}))
    ).all()
    is_embargoed = bool(environments) and bool(row.embargoed or row.other_embargoed)
    for_organisers = row.kind == HEAD_TO_HEAD.name or is_embargoed

    def is_able(worker: WorkerRow) -> bool:
        box = worker.box or {}
        return (
            worker.hardware_class == row.hardware_class
            and environments <= set(box.get("environments", {}).values())
            and all(takes_packages_of(box, user, owner=worker.user_id) for user in authors)
            and not (for_organisers and not fleet.is_organisers(worker))
        )

    return [worker for worker in workers if is_able(worker)]


def _taken(session: Session) -> Set[str | None]:
    at_work = session.scalars(select(Attempt.worker).where(Attempt.state == "running"))
    under_way = session.scalars(
        select(Attempt.sent_to).where(
            Attempt.state == "queued", Attempt.sent_to.is_not(None), Attempt.send_after > utc_now()
        )
    )
    return {*at_work, *under_way}


# The facts that decide who may take an attempt. A calibration has no `benchmark_id`. `retried` is a
# retry's verification, and `rerun` the attempt of an independent rerun.
OWN, OTHER = aliased(Submission), aliased(Submission)
OWN_CODE, OTHER_CODE = aliased(TrainingPackage), aliased(TrainingPackage)
DECIDING = (
    Attempt.hardware_class,
    Verification.kind,
    OWN.benchmark_id.label("benchmark_id"),
    OWN_CODE.environment_sha256.label("environment"),
    OTHER_CODE.environment_sha256.label("other_environment"),
    case((OWN_CODE.environment_sha256.is_not(None), OWN.user_id)).label("author"),
    case((OTHER_CODE.environment_sha256.is_not(None), OTHER.user_id)).label("other_author"),
    OWN.embargoed.label("embargoed"),
    OTHER.embargoed.label("other_embargoed"),
    case((Attempt.number > 1, Attempt.verification_id)).label("retried"),
    case((Attempt.is_apart, Attempt.id)).label("rerun"),
)


def read_waiting(
    session: Session, *which: ColumnElement[bool], each: int | None = None
) -> Sequence[Any]:
    """Read the due attempts, with the facts that decide who may take them.

    Of a submitter's attempts with equal needs it reads the oldest `each`, so that an attempt that
    nobody may take hides no other.
    """
    turn = (Attempt.by_organiser, Attempt.submitter_id)
    place = func.row_number().over(
        partition_by=(*turn, Attempt.sent_to.is_(None), *DECIDING),
        order_by=(Attempt.asked_at, Attempt.id),
    )
    waiting = (
        select(
            *(Attempt.id, Attempt.asked_at, Attempt.is_apart, Attempt.sent_to, *turn, *DECIDING),
            place.label("place"),
        )
        .join(Verification, Verification.id == Attempt.verification_id)
        .outerjoin(OWN, OWN.id == Verification.submission_id)
        .outerjoin(OWN_CODE, OWN_CODE.submission_id == OWN.id)
        .outerjoin(OTHER, OTHER.id == Verification.against_id)
        .outerjoin(OTHER_CODE, OTHER_CODE.submission_id == OTHER.id)
        .where(Attempt.state == "queued", Attempt.send_after <= utc_now(), *which)
        .subquery()
    )
    first = true() if each is None else waiting.c.place <= each
    return session.execute(select(waiting).where(first)).all()


def groups_of(session: Session, owners: set[int]) -> dict[int, set[int]]:
    """Map each owner to the members of their organisation, themselves included."""
    own = select(User.id, User.organisation_id).where(User.id.in_(owners))
    organisations = {row.id: row.organisation_id for row in session.execute(own)}
    named = {one for one in organisations.values() if one is not None}
    members = session.execute(
        select(User.id, User.organisation_id).where(User.organisation_id.in_(named))
    ).all()
    return {
        owner: {owner} | {row.id for row in members if row.organisation_id == organisation}
        for owner, organisation in organisations.items()
    }


def owners_at(
    session: Session, verification_id: str | None, *, seeds: Sequence[int]
) -> set[int | None]:
    """Return who submitted, trained or reran (by `seeds`) a verification, with organisations."""
    trained = session.execute(
        select(WorkerRow.user_id, Verification)
        .select_from(Attempt)
        .join(Verification)
        .outerjoin(WorkerRow, WorkerRow.name == Attempt.worker)
        .where(
            or_(Verification.id == verification_id, Verification.checks_id == verification_id),
            Attempt.state.in_(("done", "running")),
        )
    )
    found = {owner for owner, of in trained if of.checks_id is None or of.seeds == [*seeds]}
    found |= set(
        session.scalars(
            select(Submission.user_id)
            .join(Verification, Verification.submission_id == Submission.id)
            .where(Verification.id == verification_id)
        )
    )
    groups = groups_of(session, {owner for owner in found if owner is not None})
    return found.union(*groups.values())


router = Routes(tags=["workers"])
SHOWN_PER_CLASS = 100
MOST_SHOWN = 1000
LimitDep = Annotated[int, Query(ge=1, le=MOST_SHOWN)]
RECENT_ATTEMPTS = 200
NOTHING_ENDED = "Nothing has ended there yet that could tell how long those before it take."


class WorkView(Schema):
    """An attempt of a verification, by its number."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int


class QueuedView(WorkView):
    """A queued attempt. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` uses the median length of recent attempts of the hardware class. If it is null,
    `why_unknown` says why. `attempt` is above 1 after a failed attempt, which cost no quota.
    """

    submission_id: str | None
    runs: int
    position: int
    by_organiser: bool
    asked_at: datetime
    queued_at: datetime
    expected_start: datetime | None
    why_unknown: str | None


class PauseView(Schema):
    """The pause of everything: who set it, since when and why."""

    by: str = Field(validation_alias="paused_by")
    since: datetime = Field(validation_alias="paused_at")
    reason: str = Field(validation_alias="paused_because")


class ClassQueueView(Schema):
    """Queue of one hardware class, and the workers of the class.

    `hardware_class` is null for attempts that any worker may take. `workers` are alive and fit,
    `free` of these are idle, `out` are off their baseline, `held` are paused. Without a connected
    worker of the class any other takes its attempts, and times are not compared. `waiting` lists
    the next of `waiting_count` attempts, without attempts `under_embargo`.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    waiting_count: int
    last_seen_at: datetime | None
    waiting: list[QueuedView]
    under_embargo: int = 0


class QueueView(Schema):
    """All queued attempts by hardware class, as of a moment. While `paused`, no attempt starts."""

    as_of: datetime
    waiting: int
    paused: PauseView | None
    classes: list[ClassQueueView]


@router.read("/queue")
def get_queue(session: Session, limit: LimitDep = SHOWN_PER_CLASS) -> QueueView:
    """Read the queue by hardware class: the next `limit` attempts with their expected starts."""
    queue = _Queue(session)
    classes = {row.hardware_class for row in queue.fleet.workers}
    classes |= {name for name in queue.lines if name is not None}
    return QueueView(
        as_of=queue.now,
        waiting=sum(map(len, queue.lines.values())),
        paused=queue.fleet.pause and PauseView.model_validate(queue.fleet.pause),
        classes=[
            queue.view(name, shown=limit)
            for name in (*sorted(classes), *([None] if None in queue.lines else []))
        ],
    )


def read_place(session: Session, verification_id: str) -> tuple[ClassQueueView, QueuedView] | None:
    """Find a waiting verification's place in its class's queue, if the viewer may see it."""
    queue = _Queue(session)
    for wanted, line in queue.lines.items():
        if any(row.verification_id == verification_id for row in line):
            view = queue.view(wanted, only=verification_id)
            return (view, view.waiting[0]) if view.waiting else None
    return None


class _Queue:
    """Waiting attempts in the order of their starts. Attempts hidden from the viewer only count."""

    def __init__(self, session: Session) -> None:
        self.session, self.now = session, utc_now()
        with seeing(session, ORGANISER):
            self.fleet = Fleet.read(session)
            self.lines = _read_lines(session)
        is_open = Verification.state.in_(OPEN)
        self._visible = set(session.scalars(select(Verification.id).where(is_open)))

    @cached_property
    def _recent_seconds(self) -> defaultdict[str, list[float]]:
        query = (
            select(WorkerRow.hardware_class, Attempt.started_at, Attempt.ended_at)
            .join(WorkerRow, WorkerRow.name == Attempt.worker)
            .where(Attempt.state == "done", Attempt.started_at.is_not(None))
            .order_by(Attempt.ended_at.desc())
            .limit(RECENT_ATTEMPTS)
        )
        found: defaultdict[str, list[float]] = defaultdict(list)
        for row in self.session.execute(query):
            found[row.hardware_class].append((row.ended_at - row.started_at).total_seconds())
        return found

    def view(
        self, wanted: str | None, *, shown: int | None = None, only: str | None = None
    ) -> ClassQueueView:
        """Show the first `shown` attempts of a class's queue (None: any class), or `only` one."""
        line = self.lines.get(wanted, [])
        places = [
            (position, row)
            for position, row in enumerate(line, start=1)
            if row.verification_id in self._visible
        ]
        listed = [place for place in places if only in (None, place[1].verification_id)]
        known = [row for row in self.fleet.workers if wanted in (None, row.hardware_class)]
        alive = [row for row in self.fleet.alive if row in known]
        fit = [row for row in self.fleet.fit if row in known and row.held is None]
        return ClassQueueView(
            hardware_class=wanted,
            workers=len(fit),
            free=sum(row.state != "busy" for row in fit),
            out=sum(row.drift is not None for row in alive),
            last_seen_at=max((row.last_seen_at for row in known), default=None),
            held=sum(row.held is not None for row in alive),
            waiting_count=len(line),
            waiting=self._listed(wanted, listed[:shown]),
            under_embargo=len(line) - len(places),
        )

    def _listed(self, wanted: str | None, places: Sequence[tuple[int, Any]]) -> list[QueuedView]:
        """Leave out attempts gone meanwhile."""
        ids = [row.id for _, row in places]
        attempts = {row.id: row for row in read_attempts(self.session, Attempt.id.in_(ids))}
        views = []
        for position, one in places:
            if one.id in attempts:
                start, why = self._expect(wanted, position)
                place = {"position": position, "expected_start": start, "why_unknown": why}
                views.append(QueuedView.of(attempts[one.id], **place))
        return views

    def _expect(self, wanted: str | None, position: int) -> tuple[datetime | None, str | None]:
        """Estimate a place's start by the median of recent lengths, or say why it is unknown."""
        open_ = set(self.fleet.open)
        able = [row for row in self.fleet.takers(wanted) if row in open_]
        if not able:
            return None, self.fleet.why_none(wanted)
        behind = position - sum(row.state != "busy" for row in able)
        if behind <= 0:
            return self.now, None
        classes = {row.hardware_class for row in able}
        took = [each for name in classes for each in self._recent_seconds[name]]
        if not took:
            return None, NOTHING_ENDED
        return self.now + timedelta(seconds=behind * statistics.median(took) / len(able)), None


def _read_lines(session: Session) -> dict[str | None, list[Any]]:
    query = (
        select(
            Attempt.id, Attempt.verification_id, Attempt.hardware_class, Attempt.sent_to,
            Attempt.submitter_id, Attempt.by_organiser, Attempt.asked_at,
        )
        .where(Attempt.state == "queued")
        .order_by(Attempt.asked_at, Attempt.id)
    )  # fmt: skip
    by_class = defaultdict(list)
    for row in session.execute(query):
        by_class[row.hardware_class].append(row)
    lines = {}
    for wanted, rows in by_class.items():
        drawn = [row for row in rows if row.sent_to is not None]  # They had their turns.
        rest = [row for row in rows if row.sent_to is None]
        lines[wanted] = [*drawn, *fair_order(rest, read_turns(session, wanted))]
    return lines


def read_attempts(session: Session, *which: ColumnElement[bool]) -> Sequence[Any]:
    """Read attempts with their shown columns, oldest first."""
    query = (
        select(
            Attempt.id,
            Attempt.number.label("attempt"),
            Attempt.state,
            Attempt.worker,
            Attempt.created_at.label("queued_at"),
            Attempt.started_at,
            Attempt.ended_at,
            Attempt.failure,
            Attempt.asked_at,
            Attempt.by_organiser,
            Attempt.verification_id,
            Verification.kind,
            Verification.runs,
            Verification.submission_id,
            BenchmarkDefinition.benchmark_id.label("benchmark"),
            Submission.model,
        )
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .where(*which)
        .order_by(Attempt.started_at)
    )
    return session.execute(query).all()


def runs_under_way(session: Session, attempt_ids: Sequence[str]) -> dict[str, int]:
    """Return the current run (from 0) of each attempt, by its last event."""
    latest = (
        select(ReplayEventRow.attempt_id, func.max(ReplayEventRow.sequence).label("sequence"))
        .where(ReplayEventRow.attempt_id.in_(attempt_ids))
        .group_by(ReplayEventRow.attempt_id)
        .subquery()
    )
    rows = session.scalars(
        select(ReplayEventRow).join(
            latest,
            (ReplayEventRow.attempt_id == latest.c.attempt_id)
            & (ReplayEventRow.sequence == latest.c.sequence),
        )
    )
    return {row.attempt_id: int(row.event["run"]) for row in rows}


class Waits:
    """Says why verifications are queued. Reads each fact about the queue once."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def _facts(self) -> tuple[Fleet, int]:
        queued = select(func.count()).select_from(Verification)
        with seeing(self._session, ORGANISER):
            count = self._session.scalar(queued.where(Verification.state == "queued")) or 0
        return Fleet.read(self._session), max(count - 1, 0)

    def reason(self, verification: Verification) -> str | None:
        """Say why a verification is still queued, and the remedy. None in other states."""
        if verification.state != "queued":
            return None
        fleet, others = self._facts
        why = fleet.why_none(verification.attempts[-1].hardware_class)
        if why is not None:
            return why
        busy = sum(worker.state == "busy" for worker in fleet.alive)
        if others == 0 and busy < len(fleet.alive):
            return "A worker is about to lease it."
        queue = f"In line with {others} more" if others else "Next in line"
        return f"{queue}; {busy} of {count_text(len(fleet.alive), 'worker')} busy."

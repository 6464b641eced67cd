"""Sign on, confirm and pause workers, and judge their speed checks."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.canonical import canonical
from finishline.rules.errors import RuleError
from finishline.rules.measurements import Figure, ProbeAnswer, WorkerProbe
from finishline.rules.verification.messages import (
    WORKER_PROTOCOL,
    EvaluationBatch,
    HelloAnswer,
    ReplayReport,
    WorkerHello,
    WorkerSystem,
)
from finishline.rules.verification.utilisation import TOLERANCE
from server.base.database import find_row, to_json, utc_now, wait_to_write
from server.base.errors import ConflictError, ContentError, HttpError, NotAllowedError
from server.base.events import DispatchWakeup, WorkerOut, emit, wake_after_commit
from server.base.fleet import (
    EVERYTHING,
    Fleet,
    read_pause,
    refuse_misfit,
    register_class,
    roof_misfit,
)
from server.base.models import (
    Attempt,
    AuditRecord,
    HardwareClassRow,
    PauseRow,
    User,
    WorkerProbeRow,
    WorkerRow,
)
from server.people.accounts import fault_in, skeletons
from server.people.audit import Actor, Administrator, Subject, audited, record
from server.people.callers import Caller
from server.people.declared import Routes
from server.verifications.queue import FAILED

router = Routes(tags=["workers"])
PAUSED = "paused"
LONGEST_NAME = 200
LARGEST_COUNT = 10**7
MOST_WORKERS_EACH = 100
# A container's name goes with it.
FORGOTTEN_AFTER = timedelta(days=1)
# Each answer about workers has all of it.
LARGEST_SYSTEM_BYTES = 16 * 1024
MOST_FAILED = 3
OF_LAST = 10


@router.command("/workers/hello", role="worker", beside=True)
def send_hello(session: Session, caller: Caller, body: WorkerHello) -> HelloAnswer:
    """Sign a worker on, as a heartbeat. The first reserves its name for a user: 403 for others."""
    refuse_unstorable(body)
    require_protocol(body.protocol)
    require_a_system(body.system)
    system, name = asdict(body.system), body.system.worker
    hardware_class = session.get(HardwareClassRow, body.system.hardware_class)
    if hardware_class is not None:
        refuse_misfit(hardware_class, system)
    is_new = not require_own_name(session, name, caller)
    worker = _reserve(session, body.system, caller) if is_new else session.get_one(WorkerRow, name)
    if body.state == "idle" and (is_new or worker.state != "idle"):
        wake_after_commit(session, DispatchWakeup)
    if worker.hardware_class != body.system.hardware_class:
        worker.confirmed_at = worker.confirmed_by = None
    worker.user_id, worker.last_seen_at = caller.user_id, utc_now()
    worker.hardware_class, worker.system = body.system.hardware_class, system
    worker.state, worker.polls, worker.box = body.state, body.polls, asdict(body.box)
    is_confirmed = worker.confirmed_at is not None
    has_no_roof = hardware_class is not None and hardware_class.roof is None
    held = worker.held
    return HelloAnswer(
        order="work" if held is None else "pause",
        why=held and f"{held} by {worker.held_by}: {worker.held_because}",
        roof_wanted=has_no_roof and is_confirmed,
        unconfirmed=not is_confirmed,
    )


def refuse_unstorable(message: EvaluationBatch | ReplayReport | WorkerProbe | WorkerHello) -> None:
    """Raise ContentError on NaN, infinity or an integer JSON readers cannot hold.

    One such number in a stored report would make every later answer and proof of it fail.
    """
    try:
        canonical(asdict(message))
    except RuleError as error:
        raise ContentError(f"A number cannot be stored ({error}).") from error


def require_protocol(protocol: int) -> None:
    """Raise HttpError for a worker of another protocol."""
    if protocol != WORKER_PROTOCOL:
        raise HttpError(
            426,
            f"This worker speaks protocol {protocol}, expected {WORKER_PROTOCOL}.",
            hint="Install the finishline-server of the server's own version for the worker, and "
            "start it again.",
        )


def _reserve(session: Session, system: WorkerSystem, caller: Caller) -> WorkerRow:
    """Take a name for a user, in one transaction at a time, so that the limit holds."""
    wait_to_write(session)
    if require_own_name(session, system.worker, caller):  # Another request was first.
        return find_row(session, WorkerRow, system.worker)
    own = (
        WorkerRow.user_id == caller.user_id,
        WorkerRow.last_seen_at > utc_now() - FORGOTTEN_AFTER,
    )
    if session.scalars(select(func.count()).where(*own)).one() >= MOST_WORKERS_EACH:
        raise ConflictError(
            f"{caller.name} has {MOST_WORKERS_EACH} workers of the last 24 hours, which is as many "
            "as one user may have: start this one under one of their names "
            "(FINISHLINE_WORKER_NAME), or with a token of another user."
        )
    fault = fault_in(system.worker)
    if "/" in system.worker or system.worker in (".", ".."):
        fault = fault or "has a slash or only dots, which no address can hold"
    if fault:
        raise ContentError(f"The worker's name {system.worker!r} {fault} (FINISHLINE_WORKER_NAME).")
    shapes = skeletons(system.worker)
    others = select(WorkerRow.name).where(WorkerRow.user_id != caller.user_id)
    for other in session.scalars(others):
        if not shapes.isdisjoint(skeletons(other)):
            raise NotAllowedError(
                f"Worker {system.worker!r} looks like another user's, {other!r}: give this worker "
                "another FINISHLINE_WORKER_NAME."
            )
    worker = WorkerRow(
        name=system.worker,
        hardware_class=system.hardware_class,
        first_seen_at=utc_now(),
        **_confirmation_beside(session, system, caller),
    )
    session.add(worker)
    return worker


def _confirmation_beside(session: Session, system: WorkerSystem, caller: Caller) -> dict[str, Any]:
    """Copy the confirmation of the owner's worker on an equal machine, for jobs of a cluster."""
    machine = _machine(asdict(system))
    confirmed = session.execute(
        select(WorkerRow.system, WorkerRow.confirmed_by)
        .where(
            WorkerRow.user_id == caller.user_id,
            WorkerRow.hardware_class == system.hardware_class,
            WorkerRow.confirmed_at.is_not(None),
        )
        .order_by(WorkerRow.confirmed_at)
    )
    for known, confirmed_by in confirmed:
        if _machine(known) == machine:
            return {"confirmed_at": utc_now(), "confirmed_by": confirmed_by}
    return {}


def _machine(system: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out names and versions, which differ between jobs on equal machines."""
    nodes = [node | {"name": ""} for node in system.get("nodes", [])]
    return {**system, "worker": "", "threads": 0, "software": {}, "nodes": nodes}


def require_own_name(session: Session, name: str, caller: Caller) -> bool:
    """Raise NotAllowedError if a worker's name is another user's. Returns whether it exists."""
    _require_a_line("worker", name)
    row = session.execute(select(WorkerRow.user_id).where(WorkerRow.name == name)).first()
    if row is not None and row.user_id is not None and row.user_id != caller.user_id:
        raise NotAllowedError(
            f"Worker {name!r} was first seen with another user's token: give this worker another "
            "FINISHLINE_WORKER_NAME, or use a token of that user."
        )
    return row is not None


def require_a_system(system: WorkerSystem) -> None:
    """Raise ContentError for an impossible system: quotas are charged by its accelerators."""
    _require_a_line("system.hardware_class", system.hardware_class)
    for field in ("processor_count", "memory_gib", "accelerator_count", "threads"):
        value = getattr(system, field)
        if not 0 <= value <= LARGEST_COUNT:
            raise ContentError(f"system.{field}: expected a number of 0 to {LARGEST_COUNT}.")
    if len(to_json(asdict(system))) > LARGEST_SYSTEM_BYTES:
        raise ContentError(f"system: expected at most {LARGEST_SYSTEM_BYTES // 1024} KiB of JSON.")


def _require_a_line(field: str, text: str) -> None:
    if not (text.strip() and len(text) <= LONGEST_NAME and text.isprintable()):
        raise ContentError(f"{field}: expected 1 to {LONGEST_NAME} printable characters.")


def is_organisers_worker(session: Session, name: str) -> bool:
    """Check whether a worker is the organisers', as `Fleet.is_organisers` says."""
    worker = session.get(WorkerRow, name)
    return worker is not None and Fleet.read(session).is_organisers(worker)


def confirm_worker(
    session: Session, actor: Actor, name: str, *, reason: str | None, owner: str | None = None
) -> None:
    """Confirm a worker, so that it gets attempts, and register its hardware class if that is new.

    An actor without a user is the server's administration. Its worker counts as the organisers',
    even after a user's confirmation. It names the `owner` it expects.
    """
    worker = find_row(session, WorkerRow, name)
    is_confirmed = worker.confirmed_at is not None
    if is_confirmed and (actor.user_id is not None or worker.confirmed_by is None):
        raise ConflictError(f"Worker {name} is confirmed already.")
    user = session.get(User, worker.user_id) if worker.user_id is not None else None
    if owner is not None and (user is None or user.name != owner):
        raise ConflictError(f"Worker {name} is not {owner}'s: give yours another name.")
    register_class(session, worker, origin=f"worker {name}, confirmed by {actor.name}"[:200])
    more = {"hardware_class": worker.hardware_class}
    with audited(session, actor, "worker.confirm", worker, reason=reason, **more):
        worker.confirmed_at, worker.confirmed_by = utc_now(), actor.user_id
    wake_after_commit(session, DispatchWakeup)


class HeldError(ConflictError):
    """A worker is held. Another may lease the attempt."""


def refuse_held(session: Session, name: str) -> None:
    """Raise HeldError if a worker is off its baseline or paused, or everything is paused."""
    worker, pause = session.get(WorkerRow, name), read_pause(session)
    if worker is not None and worker.drift is not None:
        raise HeldError(
            f"Worker {name} gets no work until its speed check is back at its baseline: it is "
            f"{worker.drift}."
        )
    if worker is not None and worker.held is not None:
        by, why = worker.held_by, worker.held_because
        raise HeldError(f"Worker {name} is {worker.held} by {by}: {why}.")
    if pause is not None:
        raise HeldError(f"Nothing starts: {pause.sentence}.")


def send_again_now(session: Session, attempt_id: str) -> None:
    """Send an attempt to another worker at once, or when a pause ends."""
    session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_not(None))
        .values(send_after=utc_now())
    )
    wake_after_commit(session, DispatchWakeup)


def pause_worker(session: Session, actor: Actor, name: str, *, reason: str, **more: object) -> None:
    """Pause a worker, with `more` for the audit log. Raises NotFoundError."""
    worker = find_row(session, WorkerRow, name)
    with audited(session, actor, "worker.pause", worker, reason=reason, **more):
        worker.held, worker.held_by, worker.held_because = PAUSED, actor.name, reason
        worker.held_at = utc_now()


def pause_by_server(session: Session, name: str, *, by: str, why: str, **more: object) -> None:
    """Pause a worker by the rule `by`, and notify the organisers and its owner."""
    pause_worker(session, Administrator(by), name, reason=why, **more)
    emit(session, WorkerOut(name, "paused", why=why))


def resume_worker(session: Session, caller: Caller, name: str, *, reason: str | None) -> None:
    """Let a worker take work again. Raises NotFoundError, ConflictError if it is not paused."""
    worker = find_row(session, WorkerRow, name)
    if worker.held is None:
        raise ConflictError(f"Worker {name} is not paused.")
    with audited(session, caller, "worker.resume", worker, reason=reason):
        worker.held = worker.held_at = worker.held_by = worker.held_because = None
    wake_after_commit(session, DispatchWakeup)


def pause_everything(session: Session, caller: Caller, *, reason: str) -> None:
    """Stop attempts from starting. Running ones go on."""
    pause = session.get(PauseRow, EVERYTHING) or PauseRow(what=EVERYTHING)
    before = {"paused": pause.paused_at is not None}
    pause.paused_at, pause.paused_by, pause.paused_because = utc_now(), caller.name, reason
    session.add(pause)
    subject, after = Subject("queue", EVERYTHING), {"paused": True}
    record(session, caller, "queue.pause", subject, reason=reason, before=before, after=after)


def resume_everything(session: Session, caller: Caller, *, reason: str | None) -> None:
    """End the pause of everything. Raises ConflictError without one."""
    pause = session.get(PauseRow, EVERYTHING)
    if pause is None:
        raise ConflictError("The queue is not paused.")
    session.delete(pause)
    wake_after_commit(session, DispatchWakeup)
    subject, before, after = Subject("queue", EVERYTHING), {"paused": True}, {"paused": False}
    record(session, caller, "queue.resume", subject, reason=reason, before=before, after=after)


def pause_failing(session: Session, worker_name: str) -> None:
    """Pause all workers of a worker's owner if three of their last ten attempts failed.

    Attempts count since an organiser last resumed a worker, if the infrastructure failed. A
    right report from a busy host is excused. Organisers' own workers go on.
    """
    owner = session.scalar(select(WorkerRow.user_id).where(WorkerRow.name == worker_name))
    if owner is None or is_organisers_worker(session, worker_name):
        return
    owned = select(WorkerRow.name).where(WorkerRow.user_id == owner)
    resumed = (
        select(func.max(AuditRecord.at))
        .where(AuditRecord.action == "worker.resume", AuditRecord.subject_id.in_(owned))
        .scalar_subquery()
    )
    session.flush()
    last = session.scalars(
        select(Attempt.failure)
        .where(
            Attempt.worker.in_(owned),
            Attempt.state.in_((*FAILED, "done")),
            or_(Attempt.state != "failed", Attempt.clock_slack_seconds.is_(None)),
            or_(resumed.is_(None), Attempt.ended_at > resumed),
        )
        .order_by(Attempt.ended_at.desc())
        .limit(OF_LAST)
    ).all()
    failed = sum(bool(each) and each["kind"] == "infrastructure" for each in last)
    if failed < MOST_FAILED:
        return
    why = f"{failed} of the last {len(last)} attempts of its owner's workers failed"
    for name in session.scalars(owned).all():
        if session.get_one(WorkerRow, name).held is None:
            pause_by_server(session, name, by="failures", why=why)


HISTORY_LIMIT = 200
HAS_FIGURES = WorkerProbeRow.moment == "start"
# The roof of a class is measured once, so it says nothing about a worker's present speed.
IS_CANARY = and_(WorkerProbeRow.gflops.is_not(None), WorkerProbeRow.moment != "roof")
BASELINE_READINGS = 5
FEWEST_READINGS = 3


class ProbeView(Schema):
    """Self-measurement of a worker at one moment.

    `gflops` is its speed check, and `ratio` compares it with the worker's baseline. `figures` are
    its roofs and `host` its surroundings. Both are empty after a speed check.
    """

    moment: str
    measured_at: datetime
    attempt_id: str | None
    gflops: float | None
    configuration: str | None
    baseline_gflops: float | None
    ratio: float | None
    figures: dict[str, Figure]
    host: dict[str, str | None]


class ProbeList(Schema):
    """A worker's latest probes, newest first."""

    worker: str
    probes: list[ProbeView]


@router.command("/workers/probes", role="worker")
def post_probe(session: Session, caller: Caller, body: WorkerProbe) -> ProbeAnswer:
    """Store a worker's self-measurement. A speed check off the worker's baseline excludes it.

    If an organisers' worker is faster than its baseline, its machine was busy before, so its
    baseline starts anew.
    """
    refuse_unstorable(body)
    require_own_name(session, body.worker, caller)
    worker = session.get(WorkerRow, body.worker)
    if worker is None:
        raise ConflictError(f"Worker {body.worker!r} is not known; sign on first.")
    canary = body.canary
    row = WorkerProbeRow(
        worker=body.worker,
        moment=body.moment,
        measured_at=utc_now(),
        attempt_id=body.attempt_id,
        gflops=canary.gflops if canary is not None else None,
        configuration=canary.configuration if canary is not None else None,
        figures={name: asdict(figure) for name, figure in body.figures.items()},
        host=dict(body.host),
    )
    session.add(row)
    session.flush()
    if canary is not None:
        is_trusted = Fleet.read(session).is_organisers(worker)
        why = roof_misfit(session, worker, canary.gflops, may_raise=is_trusted)
        baseline = _baseline_of(session, worker, row)
        if baseline and is_trusted and canary.gflops > baseline * (1 + TOLERANCE):
            worker.baseline_since, baseline = row.measured_at, None
        if why is None and baseline:
            row.baseline_gflops, row.ratio = baseline, canary.gflops / baseline
            why = _why_too_far(row.ratio, baseline)
        if why is not None and worker.drift is None:
            emit(session, WorkerOut(worker.name, "drifted", why=why))
        worker.drift = why
        worker.drifted_at = (worker.drifted_at or row.measured_at) if why else None
    return ProbeAnswer(
        drifted=worker.drift is not None,
        baseline_gflops=row.baseline_gflops,
        ratio=row.ratio,
        message=worker.drift,
    )


def _baseline_of(session: Session, worker: WorkerRow, row: WorkerProbeRow) -> float | None:
    """Take the first five good readings, so that a small daily loss adds up. None below three."""
    before = select(WorkerProbeRow.gflops).where(
        WorkerProbeRow.worker == worker.name,
        WorkerProbeRow.configuration == row.configuration,
        WorkerProbeRow.id < row.id,
        or_(
            WorkerProbeRow.ratio.is_(None),
            WorkerProbeRow.ratio.between(1 - TOLERANCE, 1 + TOLERANCE),
        ),
    )
    if worker.baseline_since is not None:
        before = before.where(WorkerProbeRow.measured_at >= worker.baseline_since)
    rows = session.scalars(before.order_by(WorkerProbeRow.id).limit(BASELINE_READINGS))
    first = [gflops for gflops in rows if gflops is not None]
    return statistics.median(first) if len(first) >= FEWEST_READINGS else None


def _why_too_far(ratio: float, baseline_gflops: float) -> str | None:
    if abs(ratio - 1.0) <= TOLERANCE:
        return None
    side = "slower" if ratio < 1 else "faster"
    return (
        f"{100 * abs(ratio - 1):.1f} % {side} than its own baseline of {baseline_gflops:.4g} "
        f"GFLOP/s, where {100 * TOLERANCE:g} % is allowed: look for a busy neighbour, heat, a "
        "power limit or another driver"
    )


def set_baseline_anew(
    session: Session, caller: Caller, name: str, *, reason: str | None = None
) -> None:
    """Reset a worker's baseline: its next readings define it. Raises NotFoundError."""
    worker = find_row(session, WorkerRow, name)
    with audited(session, caller, "worker.baseline", worker, reason=reason):
        worker.baseline_since = utc_now()
        worker.drift = worker.drifted_at = None


def read_probes(
    session: Session, names: Collection[str], *which: ColumnElement[bool], each: int = 1
) -> dict[str, list[ProbeView]]:
    """Read the latest probes of each named worker, newest first."""
    place = func.row_number().over(
        partition_by=WorkerProbeRow.worker, order_by=WorkerProbeRow.id.desc()
    )
    own = WorkerProbeRow.worker.in_(names)
    latest = select(WorkerProbeRow.id, place.label("place")).where(own, *which).subquery()
    rows = session.scalars(
        select(WorkerProbeRow)
        .join(latest, latest.c.id == WorkerProbeRow.id)
        .where(latest.c.place <= each)
        .order_by(WorkerProbeRow.id.desc())
    )
    found: dict[str, list[ProbeView]] = {}
    for row in rows:
        found.setdefault(row.worker, []).append(ProbeView.of(row))
    return found


@router.read("/workers/{name}/probes")
def list_probes(session: Session, name: str) -> ProbeList:
    """List a worker's roofs and speed checks over time, the newest first."""
    find_row(session, WorkerRow, name)
    probes = read_probes(session, [name], each=HISTORY_LIMIT).get(name, [])
    return ProbeList(worker=name, probes=probes)

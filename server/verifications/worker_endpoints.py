"""Worker endpoints: hello, claim, events, report; holds of workers and queues."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.measurements import ProbeAnswer, WorkerProbe
from finishline.rules.verification.messages import (
    FENCE_HEADER,
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    HelloAnswer,
    Lease,
    NextAttempt,
    ReplayReport,
    TrainingGrant,
    WorkerHello,
)
from server.base.errors import ConflictError
from server.base.fleet import list_classes
from server.base.forms import Body, example
from server.base.request_context import moment_of_reading
from server.base.services import ServicesDep
from server.base.visibility import ORGANISER
from server.people.callers import Caller, SecretDep, WorkerDep
from server.people.declared import Form, Routes
from server.verifications import attempts, worker_probes, worker_queries, workers
from server.verifications.dispatch import LONGEST_WAIT_SECONDS, PollDesk, require_greeted
from server.verifications.grants import task_file, training_grant
from server.verifications.queue import SHOWN_PER_CLASS, read_queue
from server.verifications.worker_queries import (
    LONGEST_CURSOR,
    SHOWN_PER_PAGE,
    WorkerDetail,
    read_worker,
)
from server.verifications.worker_views import ProbeView, QueueView, WorkerList
from server.verifications.workers import HeldError, send_again_now

LONGEST_REASON = 2000
REASON = r"\S"
CONSOLE = "/console/workers"
EVERY_QUEUE, WORKER = "everything", "worker:"


class ProbeList(Schema):
    """A worker's latest probes, newest first."""

    worker: str
    probes: list[ProbeView]


class HardwareClassView(Schema):
    """A class of machines whose times may be compared. Its workers come within 10 % of `roof`.

    `roof` is in GFLOP/s, null until a worker of the class measured it. `origin` names the system
    that registered the class.
    """

    name: str
    accelerator: str | None
    accelerator_count: int
    processor: str
    processor_count: int
    roof: float | None
    origin: str
    created_at: datetime


class HardwareClassList(Schema):
    """Every registered class, by name."""

    hardware_classes: list[HardwareClassView]


class ReportAnswer(Schema):
    """State and outcome of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None


class Hold(Body):
    """Reason to pause a worker or everything. Shown with it and kept."""

    model_config = example(reason="new fans on Saturday")

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


class Resume(Body):
    """Reason to resume, optional."""

    model_config = example()

    reason: str | None = Field(default=None, max_length=LONGEST_REASON)


class Order(BaseModel):
    """An action on a worker, or on every queue, of the console's form."""

    what: str = Field(min_length=1, pattern=f"^({EVERY_QUEUE}$|{WORKER}.)")
    action: Literal["pause", "resume", "confirm", "baseline"]
    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


CHANGES_OF_A_WORKER: dict[str, Callable[..., None]] = {
    "pause": workers.pause_worker,
    "resume": workers.resume_worker,
    "confirm": workers.confirm_worker,
    "baseline": worker_probes.set_baseline_anew,
}
CHANGES_OF_EVERYTHING: dict[str, Callable[..., None]] = {
    "pause": workers.pause_everything,
    "resume": workers.resume_everything,
}
DONE = {
    "pause": "paused",
    "resume": "no longer paused",
    "confirm": "confirmed",
    "baseline": "measured anew from its next readings",
}
MOST_SHOWN = 1000
router = Routes(tags=["workers"])
LimitDep = Annotated[int, Query(ge=1, le=MOST_SHOWN)]
CursorDep = Annotated[str | None, Query(max_length=LONGEST_CURSOR)]
WaitDep = Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds at most.")]
NO_WORK: dict[str, Any] = {"description": "There is no attempt for this worker yet."}
FenceDep = Annotated[int, Header(alias=FENCE_HEADER)]


@router.read("/workers")
def list_workers(
    session: Session, limit: LimitDep = SHOWN_PER_PAGE, cursor: CursorDep = None
) -> WorkerList:
    """List the workers that ever said hello: the living by name, then those last heard first."""
    return worker_queries.list_workers(session, limit=limit, cursor=cursor)


@router.read("/queue")
def get_queue(session: Session, limit: LimitDep = SHOWN_PER_CLASS) -> QueueView:
    """Read the queue by hardware class: places and expected starts.

    Each class lists its next `limit` attempts to start.
    """
    return read_queue(session, shown=limit)


@router.post("/workers/hello")
def send_hello(body: WorkerHello, services: ServicesDep, caller: WorkerDep) -> HelloAnswer:
    """Heartbeat of a worker. The first reserves its name for the token's user: 403 for others."""
    attempts.refuse_unstorable(body)
    with services.database.write_beside() as session:
        return workers.greet(session, body, caller=caller)


@router.post("/workers/{name}/next", response_model=NextAttempt, responses={204: NO_WORK})
async def next_attempt(
    name: str, services: ServicesDep, caller: WorkerDep, wait: WaitDep = LONGEST_WAIT_SECONDS
) -> Response:
    """Wait for the next attempt of a worker, which then claims it. 204: there is none yet.

    For workers without a broker. The same attempt is answered until it is claimed.
    """
    await run_in_threadpool(require_greeted, services.database, name, caller)
    attempt_id = await services.of(PollDesk).wait(name, wait)
    if attempt_id is None:
        return Response(status_code=204)
    return Response(orjson.dumps(NextAttempt(attempt_id)), media_type="application/json")


@router.command("/workers/probes", role="worker")
def post_probe(session: Session, caller: Caller, body: WorkerProbe) -> ProbeAnswer:
    """Store a worker's self-measurement. A speed check off the worker's baseline excludes it."""
    attempts.refuse_unstorable(body)
    return worker_probes.record_probe(session, body, caller=caller)


@router.read("/workers/{name}")
def get_worker(session: Session, name: str) -> WorkerDetail:
    """Read a worker: its current attempt, its latest attempts, and its roofline."""
    return read_worker(session, name)


@router.read("/workers/{name}/probes")
def list_probes(session: Session, name: str) -> ProbeList:
    """List a worker's roofs and speed checks over time, the newest first."""
    return ProbeList(worker=name, probes=worker_probes.probe_history(session, name))


@router.command("/workers/{name}/baseline", role="organiser", status=204)
def renew_baseline(session: Session, caller: Caller, name: str) -> None:
    """Reset a worker's baseline to its next readings. For organisers."""
    worker_probes.set_baseline_anew(session, caller, name)


@router.command("/workers/{name}/confirm", role="organiser")
def confirm_worker(session: Session, caller: Caller, name: str, body: Resume) -> WorkerDetail:
    """Confirm a worker for its hardware class, so that it gets attempts. 409 if it is confirmed."""
    workers.confirm_worker(session, caller, name, reason=body.reason)
    return read_worker(session, name)


@router.command("/workers/{name}/pause", role="organiser")
def pause_worker(session: Session, caller: Caller, name: str, body: Hold) -> WorkerDetail:
    """Pause a worker until it is resumed. It finishes its current attempt."""
    workers.pause_worker(session, caller, name, reason=body.reason)
    return read_worker(session, name)


@router.command("/workers/{name}/resume", role="organiser")
def resume_worker(session: Session, caller: Caller, name: str, body: Resume) -> WorkerDetail:
    """Resume a worker. 409 if it is not paused."""
    workers.resume_worker(session, caller, name, reason=body.reason)
    return read_worker(session, name)


@router.command("/queue/pause", role="organiser")
def pause_queue(session: Session, caller: Caller, body: Hold) -> QueueView:
    """Pause the queue of every hardware class. Running attempts go on."""
    workers.pause_everything(session, caller, reason=body.reason)
    return read_queue(session, shown=SHOWN_PER_CLASS)


@router.command("/queue/resume", role="organiser")
def resume_queue(session: Session, caller: Caller, body: Resume) -> QueueView:
    """End the pause. 409 if there is none."""
    workers.resume_everything(session, caller, reason=body.reason)
    return read_queue(session, shown=SHOWN_PER_CLASS)


@router.command(None, Form(CONSOLE, "{0}"), role="organiser")
def change_worker(session: Session, caller: Caller, body: Order) -> str:
    """Pause, resume, confirm or measure anew; returns the sentence that tells of it."""
    name = body.what.removeprefix(WORKER)
    if body.what != EVERY_QUEUE:
        CHANGES_OF_A_WORKER[body.action](session, caller, name, reason=body.reason)
        return f"Worker {name} is {DONE[body.action]}."
    if body.action not in CHANGES_OF_EVERYTHING:
        raise ConflictError(
            f"A queue can't be {DONE[body.action]}: choose a worker, or pause the queue."
        )
    CHANGES_OF_EVERYTHING[body.action](session, caller, reason=body.reason)
    return f"Every queue is {DONE[body.action]}."


@router.read("/hardware-classes")
def list_hardware_classes(session: Session) -> HardwareClassList:
    """List every registered hardware class, which the systems of claims have to match."""
    rows = list_classes(session)
    return HardwareClassList(
        hardware_classes=[HardwareClassView.model_validate(row) for row in rows]
    )


@router.post("/attempts/{attempt_id}/claim")
def claim_attempt(
    attempt_id: str, body: ClaimRequest, services: ServicesDep, caller: WorkerDep
) -> Lease:
    """Lease an attempt that this worker was drawn for, with its job.

    409: it is taken or over, or this worker is held. 426: the worker is of another protocol.
    """
    try:
        with services.database.write() as session:
            return attempts.lease_attempt(session, attempt_id, body, caller=caller)
    except HeldError:
        with services.database.write() as session:
            send_again_now(session, attempt_id)
        raise


@router.get("/attempts/{attempt_id}/training")
def get_training(
    attempt_id: str, services: ServicesDep, secret: SecretDep, fence: FenceDep
) -> TrainingGrant:
    """Read the code submissions and limits of an attempt that trains in a sandbox.

    For the worker with its lease. 409 for any other, and for an attempt without code submissions.
    """
    with services.database.read(ORGANISER) as session:
        return training_grant(session, attempt_id, secret, fence=fence)


@router.get("/attempts/{attempt_id}/task/{name:path}", response_class=Response)
def get_task_file(
    attempt_id: str, name: str, services: ServicesDep, secret: SecretDep, fence: FenceDep
) -> Response:
    """Read a file of the benchmark's task, for the worker with the attempt's lease."""
    with services.database.read(ORGANISER) as session:
        content = task_file(services, session, attempt_id, secret, name, fence=fence)
    return Response(content, media_type="application/octet-stream")


@router.post("/attempts/{attempt_id}/evaluations")
def post_events(
    attempt_id: str,
    body: EvaluationBatch,
    services: ServicesDep,
    secret: SecretDep,
    fence: FenceDep,
) -> BatchAnswer:
    """Post events of a replay, with the claim's token and fence; no events: a heartbeat."""
    arrived_at = moment_of_reading()
    with services.database.write_beside() as session:
        return attempts.record_events(
            session, attempt_id, secret, body, fence=fence, arrived_at=arrived_at
        )


@router.post("/attempts/{attempt_id}/report")
def post_report(
    attempt_id: str, body: ReplayReport, services: ServicesDep, secret: SecretDep, fence: FenceDep
) -> ReportAnswer:
    """Report the end of a replay. Sending the same report again changes nothing.

    422 for a report that contradicts the events before it: the attempt has failed then, and a
    retry is queued.
    """
    slack_seconds = services.settings.clock_slack_seconds
    with services.database.write() as session:
        attempt = attempts.finish_attempt(
            session, attempt_id, secret, body, fence=fence, clock_slack_seconds=slack_seconds
        )
        verification = attempt.verification
        answer = ReportAnswer.of(verification, verification_id=verification.id)
    attempts.require_believed(attempt)
    return answer

"""What workers call: hello, claim, events, report; and the list of workers for everybody."""

from typing import Annotated

from fastapi import APIRouter, Header, Query

from rules.measurements import ProbeAnswer, WorkerProbe
from rules.messages import (
    FENCE_HEADER,
    BatchAnswer,
    ClaimGrant,
    ClaimRequest,
    EvaluationBatch,
    HelloAnswer,
    ReplayReport,
    WorkerHello,
)
from server.dependencies import OrganiserDep, PartsDep, SecretDep, WorkerDep
from server.queues.holds import HeldError, send_again_now
from server.sessions.viewing import ViewerDep
from server.verifications import attempts
from server.workers import probes, queries, service
from server.workers.queue import SHOWN_PER_CLASS, read_queue
from server.workers.queue_schemas import QueueView
from server.workers.schemas import ProbeList, ReportAnswer, WorkerDetail, WorkerList

MOST_SHOWN = 1000
router = APIRouter(tags=["workers"])
LimitDep = Annotated[int, Query(ge=1, le=MOST_SHOWN)]
FenceDep = Annotated[int, Header(alias=FENCE_HEADER)]


@router.get("/workers")
def list_workers(parts: PartsDep, viewer: ViewerDep) -> WorkerList:
    """Every worker that said hello, and whether it is alive."""
    with parts.database.read(viewer) as session:
        return WorkerList(
            workers=queries.list_workers(session, alive_seconds=parts.settings.worker_alive_seconds)
        )


@router.get("/queue")
def get_queue(parts: PartsDep, viewer: ViewerDep, limit: LimitDep = SHOWN_PER_CLASS) -> QueueView:
    """What waits for a worker, by hardware class: in which place, and when it should start.

    Of each class the next `limit` to start are listed.
    """
    with parts.database.read(viewer) as session:
        alive_seconds = parts.settings.worker_alive_seconds
        return read_queue(session, alive_seconds=alive_seconds, shown=limit)


@router.post("/workers/hello")
def hello(body: WorkerHello, parts: PartsDep, caller: WorkerDep) -> HelloAnswer:
    """A worker is alive. Its name is from then on that of the token's user: 403 for others."""
    attempts.refuse_unstorable(body)
    with parts.database.write() as session:
        return service.greet(session, body, caller=caller)


@router.post("/workers/probes")
def post_probe(body: WorkerProbe, parts: PartsDep, caller: WorkerDep) -> ProbeAnswer:
    """What a worker measured of itself. A canary off the worker's own baseline takes it out."""
    attempts.refuse_unstorable(body)
    with parts.database.write() as session:
        return probes.record_probe(session, body, caller=caller)


@router.get("/workers/{name}")
def get_worker(name: str, parts: PartsDep, viewer: ViewerDep) -> WorkerDetail:
    """One worker: what it is at, what it did lately, and its roofline."""
    with parts.database.read(viewer) as session:
        alive_seconds = parts.settings.worker_alive_seconds
        return queries.read_worker(session, name, alive_seconds=alive_seconds)


@router.get("/workers/{name}/probes")
def list_probes(name: str, parts: PartsDep) -> ProbeList:
    """A worker's roofs and canaries over time, the newest first."""
    with parts.database.read() as session:
        return ProbeList(worker=name, probes=probes.probe_history(session, name))


@router.post("/workers/{name}/baseline", status_code=204)
def renew_baseline(name: str, parts: PartsDep, organiser: OrganiserDep) -> None:
    """Take a worker in as it is now: its next readings become its baseline. For organisers."""
    with parts.database.write() as session:
        probes.set_baseline_anew(session, organiser, name)


@router.post("/attempts/{attempt_id}/claim")
def claim_attempt(
    attempt_id: str, body: ClaimRequest, parts: PartsDep, caller: WorkerDep
) -> ClaimGrant:
    """Take a queued attempt. 409: it is taken or over, or this worker is to take nothing."""
    try:
        with parts.database.write() as session:
            return attempts.claim_attempt(session, attempt_id, body, caller=caller)
    except HeldError:
        with parts.database.write() as session:
            send_again_now(session, attempt_id)
        raise


@router.post("/attempts/{attempt_id}/evaluations")
def post_events(
    attempt_id: str, body: EvaluationBatch, parts: PartsDep, secret: SecretDep, fence: FenceDep
) -> BatchAnswer:
    """Events of a replay, authorised by the claim's token and fence; no events: a heartbeat."""
    with parts.database.write() as session:
        return attempts.record_events(session, attempt_id, secret, body, fence=fence)


@router.post("/attempts/{attempt_id}/report")
def post_report(
    attempt_id: str, body: ReplayReport, parts: PartsDep, secret: SecretDep, fence: FenceDep
) -> ReportAnswer:
    """The end of a replay. Sending the same report again changes nothing."""
    with parts.database.write() as session:
        verification = attempts.finish_attempt(session, attempt_id, secret, body, fence=fence)
        return ReportAnswer(
            verification_id=verification.id,
            state=verification.state,
            outcome=verification.outcome,
        )

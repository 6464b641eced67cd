"""Holding workers and queues, and letting them go on: for organisers."""

from fastapi import APIRouter

from server.dependencies import Caller, OrganiserDep, Parts, PartsDep
from server.queues import holds
from server.queues.schemas import Hold, QueueHold, QueueResume, Resume
from server.workers.queries import read_worker
from server.workers.queue import SHOWN_PER_CLASS, read_queue
from server.workers.queue_schemas import QueueView
from server.workers.schemas import WorkerDetail

router = APIRouter(tags=["workers"])


@router.post("/workers/{name}/pause")
def pause_worker(name: str, body: Hold, parts: PartsDep, caller: OrganiserDep) -> WorkerDetail:
    """Have a worker take nothing until it is resumed. What it is at it finishes."""
    return _hold(parts, caller, name, held=holds.PAUSED, reason=body.reason)


@router.post("/workers/{name}/drain")
def drain_worker(name: str, body: Hold, parts: PartsDep, caller: OrganiserDep) -> WorkerDetail:
    """Have a worker finish what it is at, take nothing more, and end its process."""
    return _hold(parts, caller, name, held=holds.DRAINING, reason=body.reason)


@router.post("/workers/{name}/resume")
def resume_worker(name: str, body: Resume, parts: PartsDep, caller: OrganiserDep) -> WorkerDetail:
    """Let a paused worker, or one that still drains, take work again. 409 if it is neither."""
    with parts.database.write() as session:
        holds.resume_worker(session, caller, name, reason=body.reason)
    return _view_worker(parts, name)


@router.post("/queue/pause")
def pause_queue(body: QueueHold, parts: PartsDep, caller: OrganiserDep) -> QueueView:
    """Let nothing of a hardware class start, or nothing at all. What runs goes on."""
    with parts.database.write() as session:
        holds.pause_queue(session, caller, body.hardware_class, reason=body.reason)
    return _view_queue(parts)


@router.post("/queue/resume")
def resume_queue(body: QueueResume, parts: PartsDep, caller: OrganiserDep) -> QueueView:
    """End the pause of a hardware class, or that of everything. 409 if there is none."""
    with parts.database.write() as session:
        holds.resume_queue(session, caller, body.hardware_class, reason=body.reason)
    return _view_queue(parts)


def _hold(parts: Parts, caller: Caller, name: str, *, held: str, reason: str) -> WorkerDetail:
    with parts.database.write() as session:
        holds.hold_worker(session, caller, name, held=held, reason=reason)
    return _view_worker(parts, name)


def _view_worker(parts: Parts, name: str) -> WorkerDetail:
    with parts.database.read() as session:
        return read_worker(session, name, alive_seconds=parts.settings.worker_alive_seconds)


def _view_queue(parts: Parts) -> QueueView:
    alive_seconds = parts.settings.worker_alive_seconds
    with parts.database.read() as session:
        return read_queue(session, alive_seconds=alive_seconds, shown=SHOWN_PER_CLASS)

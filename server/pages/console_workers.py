"""Confirming, pausing and resuming workers from the console, and pausing everything."""

from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from server.base.errors import ConflictError
from server.base.viewer import ORGANISER
from server.pages.console_page import Console, Done, OrganiserDep
from server.people.declared import filled
from server.people.dependencies import Caller
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.verifications import workers
from server.verifications.queue import read_queue
from server.verifications.worker_endpoints import LONGEST_REASON, REASON, CursorDep
from server.verifications.worker_probes import set_baseline_anew
from server.verifications.worker_queries import SHOWN_PER_PAGE, list_workers

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/workers"
EVERYTHING, WORKER = "everything", "worker:"
DONE = {
    "pause": "paused",
    "resume": "no longer paused",
    "confirm": "confirmed",
    "baseline": "measured anew from its next readings",
}


class Order(BaseModel):
    """An action on a worker, or on every queue."""

    what: str = Field(min_length=1, pattern=f"^({EVERYTHING}$|{WORKER}.)")
    action: Literal["pause", "resume", "confirm", "baseline"]
    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


@router.get(ADDRESS)
def workers_page(
    console: OrganiserDep, what: str = "", action: str = "pause", cursor: CursorDep = None
) -> HTMLResponse:
    """A page of workers, the queue, and the form that pauses them."""
    return _page(console, {"what": what, "action": action}, cursor=cursor)


@router.post(ADDRESS)
def change(console: OrganiserDep, form: FormDep) -> Response:
    """Pause, resume, confirm or measure anew."""

    def carry_out(session: Session, wanted: Order) -> Done:
        name = _carry_out(session, console.caller, wanted)
        told = f"{name[:1].upper()}{name[1:]} is {DONE[wanted.action]}."
        return ADDRESS, Notice(told)

    return console.submit(Order, filled(form), carry_out, partial(_page, console, form))


def _carry_out(session: Session, caller: Caller, wanted: Order) -> str:
    """Carry out an action; return the name of its subject, for a sentence."""
    if wanted.what.startswith(WORKER):
        name = wanted.what.removeprefix(WORKER)
        if wanted.action == "confirm":
            workers.confirm_worker(session, caller, name, reason=wanted.reason)
        elif wanted.action == "baseline":
            set_baseline_anew(session, caller, name)
        elif wanted.action == "resume":
            workers.resume_worker(session, caller, name, reason=wanted.reason)
        else:
            workers.pause_worker(session, caller, name, reason=wanted.reason)
        return f"worker {name}"
    if wanted.action in ("confirm", "baseline"):
        verb = "start a baseline" if wanted.action == "baseline" else wanted.action
        raise ConflictError(f"A queue cannot {verb}: choose a worker, or pause the queue.")
    if wanted.action == "pause":
        workers.pause_everything(session, caller, reason=wanted.reason)
    else:
        workers.resume_everything(session, caller, reason=wanted.reason)
    return "every queue"


def _page(
    console: Console, typed: Fields, *, cursor: str | None = None, **wrong: Any
) -> HTMLResponse:
    with console.services.database.read(ORGANISER) as session:
        page = list_workers(session, limit=SHOWN_PER_PAGE, cursor=cursor)
        queue = read_queue(session, shown=1)
    names = [worker.name for worker in page.workers]
    chosen = typed.get("what", "")
    if chosen.startswith(WORKER) and chosen.removeprefix(WORKER) not in names:
        names.append(chosen.removeprefix(WORKER))
    following = page.next_cursor
    return console.page(
        "workers.html",
        typed=typed,
        workers=page.workers,
        first=None if cursor is None else ADDRESS,
        following=None if following is None else f"{ADDRESS}?{urlencode({'cursor': following})}",
        here_query="" if cursor is None else f"{urlencode({'cursor': cursor})}&",
        queue=queue,
        choices=[
            ("", "–"),
            (EVERYTHING, "every queue"),
            *((f"{WORKER}{name}", f"worker {name}") for name in names),
        ],
        **wrong,
    )

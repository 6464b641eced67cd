"""Pages of the workers and of the queues."""

from urllib.parse import urlencode

from sqlalchemy.orm import Session

from server.pages.declared import Context, public_page
from server.verifications.probes import IS_CANARY, list_probes, read_probes
from server.verifications.queue import get_queue
from server.verifications.worker_endpoints import (
    CursorDep,
    count_workers,
    get_worker,
    list_workers,
)

SHORT_HISTORY = 40


@public_page("/workers", "workers.html")
def workers_page(session: Session, cursor: CursorDep = None) -> Context:
    """A page of workers, and the attempts that wait in each queue."""
    page = list_workers(session, cursor=cursor)
    names, following = [worker.name for worker in page.workers], page.next_cursor
    return {
        "workers": page.workers,
        "counts": count_workers(session),
        "first": None if cursor is None else "/workers",
        "following": following and f"/workers?{urlencode({'cursor': following})}",
        "queue": get_queue(session),
        "readings": read_probes(session, names, IS_CANARY, each=SHORT_HISTORY),
    }


@public_page("/workers/{name:path}", "worker.html")
def worker_page(session: Session, name: str) -> Context:
    """One worker: its attempts, its speed check over time, its roofs."""
    detail = get_worker(session, name)
    return {**dict(detail), "probes": list_probes(session, name).probes}

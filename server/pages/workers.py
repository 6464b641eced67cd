"""Pages of the workers and of the queues."""

from urllib.parse import urlencode

from sqlalchemy.orm import Session

from server.pages.declared import Context, public_page
from server.verifications.queue import SHOWN_PER_CLASS, read_queue
from server.verifications.worker_endpoints import CursorDep
from server.verifications.worker_probes import IS_CANARY, probe_history, read_probes
from server.verifications.worker_queries import (
    SHOWN_PER_PAGE,
    count_workers,
    list_workers,
    read_worker,
)

SHORT_HISTORY = 40


@public_page("/workers", "workers.html")
def workers_page(session: Session, cursor: CursorDep = None) -> Context:
    """A page of workers, and the attempts that wait in each queue."""
    page = list_workers(session, limit=SHOWN_PER_PAGE, cursor=cursor)
    names, following = [worker.name for worker in page.workers], page.next_cursor
    return {
        "workers": page.workers,
        "counts": count_workers(session),
        "first": None if cursor is None else "/workers",
        "following": following and f"/workers?{urlencode({'cursor': following})}",
        "queue": read_queue(session, shown=SHOWN_PER_CLASS),
        "readings": read_probes(session, names, IS_CANARY, each=SHORT_HISTORY),
    }


@public_page("/workers/{name:path}", "worker.html")
def worker_page(session: Session, name: str) -> Context:
    """One worker: its attempts, its speed check over time, its roofs."""
    detail = read_worker(session, name)
    return {**dict(detail), "probes": probe_history(session, name)}

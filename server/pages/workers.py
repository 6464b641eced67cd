"""Pages of the workers and of the queues."""

from urllib.parse import urlencode

from sqlalchemy.orm import Session

from server.base.services import Services
from server.pages.declared import Context, public_page
from server.verifications.queue import SHOWN_PER_CLASS, read_queue
from server.verifications.worker_endpoints import CursorDep
from server.verifications.worker_probes import canary_readings, probe_history
from server.verifications.worker_queries import (
    SHOWN_PER_PAGE,
    count_workers,
    list_workers,
    read_worker,
)


@public_page("/workers", "workers.html")
def workers_page(session: Session, services: Services, cursor: CursorDep = None) -> Context:
    """A page of workers, and the attempts that wait in each queue."""
    alive_seconds = services.settings.worker_alive_seconds
    page = list_workers(session, alive_seconds=alive_seconds, limit=SHOWN_PER_PAGE, cursor=cursor)
    following = page.next_cursor
    return {
        "workers": page.workers,
        "counts": count_workers(session, alive_seconds=alive_seconds),
        "first": None if cursor is None else "/workers",
        "following": following and f"/workers?{urlencode({'cursor': following})}",
        "queue": read_queue(session, alive_seconds=alive_seconds, shown=SHOWN_PER_CLASS),
        "readings": canary_readings(session, [worker.name for worker in page.workers]),
    }


@public_page("/workers/{name:path}", "worker.html")
def worker_page(session: Session, services: Services, name: str) -> Context:
    """One worker: its attempts, its speed check over time, its roofs."""
    detail = read_worker(session, name, alive_seconds=services.settings.worker_alive_seconds)
    return {**dict(detail), "probes": probe_history(session, name)}

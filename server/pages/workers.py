"""Pages of the workers and of the queues."""

from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.base.services import ServicesDep
from server.people.signed_in import ViewerDep
from server.verifications.queue import SHOWN_PER_CLASS, read_queue
from server.verifications.worker_endpoints import CursorDep
from server.verifications.worker_probes import canary_readings, probe_history
from server.verifications.worker_queries import (
    SHOWN_PER_PAGE,
    count_workers,
    list_workers,
    read_worker,
)
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/workers", response_class=HTMLResponse)
def workers_page(services: ServicesDep, viewer: ViewerDep, cursor: CursorDep = None) -> str:
    """A page of workers, and the attempts that wait in each queue."""
    alive_seconds = services.settings.worker_alive_seconds
    with services.database.read(viewer) as session:
        page = list_workers(
            session, alive_seconds=alive_seconds, limit=SHOWN_PER_PAGE, cursor=cursor
        )
        counts = count_workers(session, alive_seconds=alive_seconds)
        queue = read_queue(session, alive_seconds=alive_seconds, shown=SHOWN_PER_CLASS)
        readings = canary_readings(session, [worker.name for worker in page.workers])
    following = page.next_cursor
    return render(
        "workers.html",
        workers=[worker.model_dump(mode="json") for worker in page.workers],
        counts=counts,
        first=None if cursor is None else "/workers",
        following=None if following is None else f"/workers?{urlencode({'cursor': following})}",
        queue=queue.model_dump(mode="json"),
        readings={
            name: [probe.model_dump(mode="json") for probe in probes]
            for name, probes in readings.items()
        },
    )


@router.get("/workers/{name:path}", response_class=HTMLResponse)
def worker_page(name: str, services: ServicesDep, viewer: ViewerDep) -> str:
    """One worker: its attempts, its speed check over time, its roofs."""
    alive_seconds = services.settings.worker_alive_seconds
    with services.database.read(viewer) as session:
        detail = read_worker(session, name, alive_seconds=alive_seconds)
        probes = probe_history(session, name)
    return render(
        "worker.html",
        **detail.model_dump(mode="json"),
        probes=[probe.model_dump(mode="json") for probe in probes],
    )

"""Who replays."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.dependencies import PartsDep
from server.workers.queries import list_workers
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/workers", response_class=HTMLResponse)
def workers_page(parts: PartsDep) -> str:
    """Who replays."""
    with parts.database.read() as session:
        workers = list_workers(session, alive_seconds=parts.settings.worker_alive_seconds)
    return render("workers.html", workers=[w.model_dump(mode="json") for w in workers])

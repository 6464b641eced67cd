"""The first page."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions
from server.benchmarks.schemas import benchmark_view
from server.dependencies import PartsDep
from server.records.queries import standing_record
from server.verifications.queries import list_verifications, view
from web.render import render

router = APIRouter(include_in_schema=False)
LATEST = 8


@router.get("/", response_class=HTMLResponse)
def home(parts: PartsDep) -> str:
    """Every benchmark with its record, and the latest verifications."""
    alive = parts.settings.worker_alive_seconds
    cards = []
    with parts.database.read() as session:
        counts = count_submissions(session)
        for benchmark_id, benchmark in parts.benchmarks.items():
            card = benchmark_view(benchmark, counts.get(benchmark_id, NO_SUBMISSIONS))
            # Looked for only where something stands: most of the archives' boards are empty.
            record = standing_record(session, benchmark) if card.submissions else None
            shown = record.model_dump(mode="json") if record is not None else None
            cards.append(card.model_dump(mode="json") | {"record": shown})
        verifications = [
            view(session, verification, alive_seconds=alive, with_report=False).model_dump(
                mode="json"
            )
            for verification in list_verifications(session, state=None, limit=LATEST)
        ]
    return render("home.html", benchmarks=cards, verifications=verifications)

"""The first page."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from server.base.services import Services, ServicesDep
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions
from server.benchmarks.views import benchmark_view
from server.boards.service import Standing, standing_by_benchmark
from server.pages.board_times import times_of
from server.verifications.queries import latest_verdicts, live_verifications
from web.render import render

router = APIRouter(include_in_schema=False)
LATEST = 8


@router.get("/", response_class=HTMLResponse)
def home(services: ServicesDep) -> str:
    """Every benchmark with its record, the replays under way, and the latest verdicts."""
    with services.database.read() as session:
        benchmarks = _cards(session, services)
        live, live_count = live_verifications(session, limit=LATEST)
        verdicts = latest_verdicts(session, limit=LATEST)
    return render(
        "home.html",
        benchmarks=benchmarks,
        live=[line.model_dump(mode="json") for line in live],
        live_count=live_count,
        verdicts=[line.model_dump(mode="json") for line in verdicts],
    )


def _cards(session: Session, services: Services) -> list[dict[str, Any]]:
    counts = count_submissions(session, services.benchmarks)
    standing = standing_by_benchmark(session, services.benchmarks)
    return [
        benchmark_view(benchmark, counts.get(name, NO_SUBMISSIONS)).model_dump(mode="json")
        | _records(standing.get(name))
        | {"time": times_of(session, services.benchmarks, name, _division(standing.get(name)))}
        for name, benchmark in services.benchmarks.items()
    ]


def _records(standing: Standing | None) -> dict[str, Any]:
    """The records of a card, the standing one last, which alone names its holder."""
    if standing is None:
        return {"records": []}
    *earlier, last = map(asdict, standing.records)
    names = ("submitter", "model", "hardware", "status", "evidence", "check")
    last |= {name: getattr(standing, name) for name in names}
    return {"records": [*earlier, last]}


def _division(standing: Standing | None) -> str | None:
    return None if standing is None else standing.division

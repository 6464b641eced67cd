"""The first page."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from server.base.board_versions import cached_for_board
from server.base.services import Services, ServicesDep
from server.base.standing import find_verification
from server.benchmarks.queries import NO_SUBMISSIONS, Counts, count_submissions
from server.benchmarks.views import benchmark_view
from server.boards.service import Standing, read_race, standing_by_benchmark
from server.pages.board_times import times_fitting
from server.verifications.queries import LiveLine, VerdictLine, latest_verdicts, live_verifications
from server.verifications.views import view
from web.formats import SECONDS, TimeFormat
from web.race import Picture, verification_picture
from web.render import render

router = APIRouter(include_in_schema=False)
LATEST = 6
RACES = ("replay", "entry")
RoundQuery = Annotated[str | None, Query(max_length=40)]


@router.get("/", response_class=HTMLResponse)
def home(services: ServicesDep, round: RoundQuery = None) -> str:  # noqa: A002  the field's word
    """The race under way or the last one, counts, records by round, and the latest verdicts."""
    with services.database.read() as session:
        counts = count_submissions(session, services.benchmarks)
        live, live_count = live_verifications(session, limit=LATEST)
        verdicts = latest_verdicts(session, limit=LATEST)
        running = [one for one in live if one.run is not None]
        rows = _rows(session, services, counts)
        times = {row["id"]: row["time"] for row in rows}
        return render(
            "home.html",
            benchmarks=rows,
            round=round,
            counts=_totals(counts.values()),
            race=_race(session, times, [*running, *verdicts]),
            live=[line.model_dump(mode="json") for line in live],
            live_count=live_count,
            verdicts=[line.model_dump(mode="json") for line in verdicts],
        )


def _rows(session: Session, services: Services, counts: dict[str, Counts]) -> list[dict[str, Any]]:
    """Every benchmark with its records, its best claim and the unit of its times."""
    standings = standing_by_benchmark(session, services.benchmarks)
    rows = []
    for name, benchmark in services.benchmarks.items():
        count, standing = counts.get(name, NO_SUBMISSIONS), standings.get(name)
        claims = count.best_claims
        claim = claims.get(next(iter(claims), "") if standing is None else standing.division)
        seconds = [] if standing is None else [record.tta_seconds for record in standing.records]
        if standing is not None and (slowest := count.slowest_published.get(standing.division)):
            seconds.append(slowest)
        evidence = set() if standing is None else {standing.evidence}
        rows.append(
            benchmark_view(benchmark, count).model_dump(mode="json")
            | _records(standing)
            | {
                "best_claim": claim,
                "time": times_fitting(benchmark, [*seconds, claim], evidence),
            }
        )
    return rows


def _records(standing: Standing | None) -> dict[str, Any]:
    """The records of a row, the standing one last, which alone names its holder."""
    if standing is None:
        return {"records": []}
    *earlier, last = map(asdict, standing.records)
    names = ("submitter", "display_name", "model", "hardware", "status", "evidence", "check")
    last |= {name: getattr(standing, name) for name in names}
    return {"records": [*earlier, last]}


def _totals(counts: Iterable[Counts]) -> dict[str, int]:
    found = list(counts)
    names = ("claimed", "measured", "contradicted")
    totals = {name: sum(getattr(count, name) for count in found) for name in names}
    return totals | {"total": sum(count.train + count.inference for count in found)}


def _race(
    session: Session, times: Mapping[str, TimeFormat], lines: Iterable[LiveLine | VerdictLine]
) -> dict[str, Any] | None:
    """The first verification that has evaluations to draw; None where no training was replayed."""
    for line in lines:
        if line.kind in RACES and (picture := _picture(session, times, line)) is not None:
            return {"line": line.model_dump(mode="json"), "picture": picture}
    return None


def _picture(
    session: Session, times: Mapping[str, TimeFormat], line: LiveLine | VerdictLine
) -> Picture | None:
    """A race as SVG; one that has ended is drawn once for each version of its board."""

    def draw() -> Picture | None:
        verification = find_verification(session, line.id)
        race = read_race(session, line.id).model_dump(mode="json")
        shown = view(session, verification, alive_seconds=0.0, with_report=False, with_band=False)
        time = times.get(line.benchmark, SECONDS)
        return verification_picture(shown.model_dump(mode="json"), race, time)

    if isinstance(line, LiveLine):
        return draw()
    return cached_for_board(session, line.benchmark, f"race {line.id}", draw)

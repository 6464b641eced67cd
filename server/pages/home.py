"""The first page."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Evidence, Round
from server.base.board_versions import cached_for_board
from server.base.services import Services
from server.base.standing import find_verification
from server.benchmarks.views import NO_SUBMISSIONS, Counts, count_submissions
from server.boards.live import read_race
from server.boards.records import DivisionRecords, lowest_records, records_by_benchmark
from server.pages.board_times import times_fitting
from server.pages.declared import Context, public_page
from server.pages.entries import untimed_runs
from server.pages.round_views import round_views
from server.verifications.views import LiveLine, VerdictLine, latest_verdicts, live_verifications
from server.verifications.views import line as summarise
from web.formats import SECONDS, TimeFormat
from web.race import Picture, verification_picture

LATEST = 6
RACES = ("replay", "entry")
EVIDENCE_OF_ROUND: dict[Round | None, tuple[Evidence, ...]] = {
    "open": ("measured",),
    "archive": ("published",),
    None: ("measured", "published"),
}
RoundQuery = Annotated[str | None, Query(max_length=40)]


@public_page("/", "home.html", to_all=True)
def home(session: Session, services: Services, round: RoundQuery = None) -> Context:  # noqa: A002  the field's word
    """The race under way or the last one, counts, records by round, and the latest verdicts."""
    counts = count_submissions(session, services.benchmarks)
    live, live_count = live_verifications(session, limit=LATEST)
    verdicts = latest_verdicts(session, limit=LATEST)
    running = [one for one in live if one.run is not None]
    rows = _rows(session, services, counts)
    times = {row["id"]: row["time"] for row in rows if row["round"] != "archive"}
    return {
        "benchmarks": rows,
        "units": {name: one.target.unit for name, one in services.benchmarks.items()},
        "round": round,
        "counts": _totals(counts.values()),
        "race": _race(session, times, [*running, *verdicts]),
        "live": live,
        "live_count": live_count,
        "verdicts": verdicts,
    }


def _rows(session: Session, services: Services, counts: dict[str, Counts]) -> list[dict[str, Any]]:
    """Every benchmark and round with its records, its best claim and the unit of its times."""
    records = records_by_benchmark(session, services.benchmarks)
    held = {name: lowest_records(found) for name, found in records.items()}
    rows = []
    for name, benchmark in services.benchmarks.items():
        count, lists = counts.get(name, NO_SUBMISSIONS), held.get(name, {})
        for row in round_views(benchmark, count):
            evidence = EVIDENCE_OF_ROUND[row["round"]]
            found = next((lists[each] for each in evidence if each in lists), None)
            rows.append(row | _row(benchmark, count, found, claims=row["round"] != "archive"))
    return rows


def _row(
    benchmark: Benchmark, count: Counts, held: DivisionRecords | None, *, claims: bool
) -> dict[str, Any]:
    best = count.best_claims if claims else {}
    claim = best.get(next(iter(best), "") if held is None else held.division)
    records = [] if held is None else held.records
    times = [claim, *(record.tta_seconds for record in records)]
    if held is not None and held.evidence == "published":
        times.append(count.slowest_published.get(held.division))
    time = times_fitting(benchmark, times, set() if held is None else {held.evidence})
    shown = [record.model_dump() for record in records]
    return {"records": shown, "best_claim": claim, "time": time}


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
            return {"line": line, "picture": picture}
    return None


def _picture(
    session: Session, times: Mapping[str, TimeFormat], line: LiveLine | VerdictLine
) -> Picture | None:
    """A race as SVG; one that has ended is drawn once for each version of its board."""

    def draw() -> Picture | None:
        verification = find_verification(session, line.id)
        race = read_race(session, verification).model_dump(mode="json")
        shown = summarise(session, verification)
        time = times.get(line.benchmark, SECONDS)
        untimed = untimed_runs(verification)
        return verification_picture(shown.model_dump(mode="json"), race, time, untimed)

    if isinstance(line, LiveLine):
        return draw()
    return cached_for_board(session, line.benchmark, f"race {line.id}", draw)

"""Records and verdicts as Atom feeds, of all benchmarks and of each."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.database import moment_text
from server.base.middleware import tagged
from server.base.models import AuditRecord
from server.base.services import Services, site_address
from server.benchmarks.definitions import find_benchmark
from server.boards.records import records_by_benchmark
from server.pages.board_times import times_of
from server.people.audit import read_head
from server.people.declared import Routes
from server.verifications.views import latest_verdicts
from web.feed import (
    MEDIA_TYPE,
    Feed,
    FeedEntry,
    atom_feed,
    audit_entry,
    record_entry,
    verdict_entry,
)
from web.formats import moment

router = Routes(include_in_schema=False)
MOST_ENTRIES = 50


@router.read("/feed.atom", to_all=True)
def feed(session: Session, services: Services, request: Request) -> Response:
    """The latest records and verdicts of every benchmark."""
    return _answer(services, request, "Finishline", "/", _entries(session, services.benchmarks))


@router.read("/benchmarks/{benchmark_id}/feed.atom", to_all=True)
def benchmark_feed(
    session: Session, services: Services, request: Request, benchmark_id: str
) -> Response:
    """The latest records and verdicts of a benchmark."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    entries = _entries(session, {benchmark_id: benchmark}, benchmark_id)
    title, page = f"{benchmark.title} · Finishline", f"/benchmarks/{benchmark_id}"
    return _answer(services, request, title, page, entries)


@router.read("/audit.atom", to_all=True)
def audit_feed(session: Session, services: Services, request: Request) -> Response:
    """The head of the audit log: readers of the feed keep it, so a later change is noticed."""
    head = read_head(session)
    row = session.get(AuditRecord, head.id)
    entries = [] if row is None else [audit_entry(head.id, head.sha256, moment_text(row.at))]
    return _answer(services, request, "Audit log · Finishline", "/", entries)


def _entries(
    session: Session, benchmarks: Mapping[str, Benchmark], only: str | None = None
) -> list[FeedEntry]:
    named = {key: {"id": key, "title": found.title} for key, found in benchmarks.items()}
    verdicts = latest_verdicts(session, limit=MOST_ENTRIES, benchmark_id=only)
    found = [
        *_records(session, benchmarks, named),
        *(
            verdict_entry(named[verdict.benchmark], verdict.model_dump(mode="json"))
            for verdict in verdicts
            if verdict.benchmark in named
        ),
    ]
    latest = sorted(found, key=lambda entry: (moment(entry.updated), entry.subject), reverse=True)
    return latest[:MOST_ENTRIES]


def _records(
    session: Session,
    benchmarks: Mapping[str, Benchmark],
    named: dict[str, dict[str, Any]],
) -> Iterator[FeedEntry]:
    for benchmark_id, records in records_by_benchmark(session, benchmarks).items():
        for division in records.divisions:
            for record in division.records:
                if record.returned or record.ended == "withdrawn":  # The first has its entry.
                    continue
                time = times_of(
                    session, benchmarks, benchmark_id, division.division, division.evidence
                )
                view = record.model_dump(mode="json")
                yield record_entry(named[benchmark_id], division.division, view, time)


def _answer(
    services: Services, request: Request, title: str, page: str, entries: list[FeedEntry]
) -> Response:
    base = site_address(request, services.settings)
    content = atom_feed(Feed(base, request.url.path, page, title, entries))
    return tagged(request, content, MEDIA_TYPE)

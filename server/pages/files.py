"""Serve files with fixed addresses: static ones, feeds, llms.txt and security.txt."""

from collections.abc import Mapping
from datetime import datetime, time, timedelta

from fastapi import Request, Response
from sqlalchemy.orm import Session
from starlette.exceptions import HTTPException

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.database import ServicesDep, benchmarks_of, moment_text, site_address, utc_now
from server.base.http import is_known, tagged, takes_gzip
from server.base.models import AuditRecord
from server.benchmarks.definitions import find_benchmark
from server.boards.records import records_by_benchmark
from server.pages.board import times_of
from server.people.audit import read_head
from server.people.declared import Routes
from server.verifications.views import latest_verdicts
from web.assets import Asset, static_asset
from web.documents import read_documents
from web.feed import (
    MEDIA_TYPE,
    FeedEntry,
    atom_feed,
    audit_entry,
    record_entry,
    verdict_entry,
)
from web.formats import moment

router = Routes(include_in_schema=False)
# Crawlers may read every public page. Sorted and filtered boards repeat the same board.
ROBOTS = """User-agent: *
Disallow: /api/
Disallow: /console
Disallow: /*/charts/
"""


@router.get("/static/{path:path}")
def static_file(path: str, request: Request) -> Response:
    """Serve a static file, compressed once. Its fingerprinted address is cached for ever."""
    asset = static_asset(path)
    if asset is None:
        raise HTTPException(404, "Not found")
    return asset_answer(asset, request)


@router.get("/favicon.ico")
def favicon(request: Request) -> Response:
    """Serve the icon at the address that browsers request by default."""
    return static_file("favicon.svg", request)


@router.get("/robots.txt")
def robots() -> Response:
    """Serve the addresses that crawlers should skip."""
    return Response(ROBOTS, media_type="text/plain; charset=utf-8")


def asset_answer(asset: Asset, request: Request) -> Response:
    """Serve an asset, compressed if accepted, or 304 to a reader that has it."""
    keep = "public, max-age=31536000, immutable" if asset.immutable else "no-cache"
    headers = {"ETag": asset.etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if is_known(request.scope, asset.etag):
        return Response(status_code=304, headers=headers)
    content = asset.content
    if takes_gzip(request.scope):
        content = asset.gzip_content
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)


TEXT = "text/plain; charset=utf-8"
VALID_DAYS = 180
ABOUT = """# Finishline

> A time-to-accuracy competition server: training runs with their logs, hardware and price,
> trained again by workers with secret seeds, and ranked by measured time.

Every page has a JSON twin; reading takes no token unless the server says so. Times are seconds.

## API

- [OpenAPI]({site}/openapi.json): every operation and schema
- [Benchmarks]({site}/api/v1/benchmarks): targets, clocks, divisions
- [Runs]({site}/api/v1/runs.parquet): every run of every benchmark

## Leaderboards (also as .csv and .parquet)

{boards}
## Documents

{documents}"""


@router.get("/llms.txt")
def llms_txt(services: ServicesDep, request: Request) -> Response:
    """Describe this site for a program that reads text, with the documents as Markdown."""
    site = site_address(request)
    documents = read_documents(services.settings.docs_dir).chapters()
    text = ABOUT.format(
        site=site,
        boards="".join(
            f"- [{benchmark.title}]({site}/api/v1/leaderboards/{name})\n"
            for name, benchmark in services.benchmarks.items()
        ),
        documents="".join(
            f"- [{each.page.title}]({site}{each.address}.md): {each.page.description}\n"
            for each in documents
        ),
    )
    return Response(text, media_type=TEXT)


@router.get("/.well-known/security.txt")
def security_txt(services: ServicesDep, request: Request) -> Response:
    """Say where to report a weakness (RFC 9116)."""
    site = site_address(request)
    contact = services.settings.security_contact or f"{site}/docs/operating#reporting-a-weakness"
    until = datetime.combine(utc_now().date(), time()) + timedelta(days=VALID_DAYS)
    lines = (
        f"Contact: {contact}",
        f"Expires: {until.isoformat()}Z",
        f"Canonical: {site}/.well-known/security.txt",
        "Preferred-Languages: en",
    )
    return Response("\n".join(lines) + "\n", media_type=TEXT)


MOST_ENTRIES = 50


@router.read("/feed.atom", to_all=True)
def feed(session: Session, request: Request) -> Response:
    """Serve the latest records and verdicts of every benchmark."""
    entries = _entries(session, benchmarks_of(session), None)
    return _answer(request, "Finishline", "/", entries)


@router.read("/benchmarks/{benchmark_id}/feed.atom", to_all=True)
def benchmark_feed(session: Session, request: Request, benchmark_id: str) -> Response:
    """Serve the latest records and verdicts of a benchmark."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    entries = _entries(session, {benchmark_id: benchmark}, benchmark_id)
    title, page = f"{benchmark.title} · Finishline", f"/benchmarks/{benchmark_id}"
    return _answer(request, title, page, entries)


@router.read("/audit.atom", to_all=True)
def audit_feed(session: Session, request: Request) -> Response:
    """Serve the head of the audit log. Readers keep the feed, so a later change is noticed."""
    head = read_head(session)
    row = session.get(AuditRecord, head.id)
    entries = [] if row is None else [audit_entry(head.id, head.sha256, moment_text(row.at))]
    return _answer(request, "Audit log · Finishline", "/", entries)


def _entries(
    session: Session, benchmarks: Mapping[str, Benchmark], only: str | None
) -> list[FeedEntry]:
    named = {key: {"id": key, "title": found.title} for key, found in benchmarks.items()}
    found = [
        verdict_entry(named[verdict.benchmark], verdict.model_dump(mode="json"))
        for verdict in latest_verdicts(session, limit=MOST_ENTRIES, benchmark_id=only)
        if verdict.benchmark in named
    ]
    for name, records in records_by_benchmark(session, benchmarks).items():
        for division in records.divisions:
            time = times_of(session, name, division.division, division.evidence)
            found += [
                record_entry(named[name], division.division, record.model_dump(mode="json"), time)
                for record in division.records
                if not record.returned and record.ended != "withdrawn"  # The first has its entry.
            ]
    latest = sorted(found, key=lambda entry: (moment(entry.updated), entry.subject), reverse=True)
    return latest[:MOST_ENTRIES]


def _answer(request: Request, title: str, page: str, entries: list[FeedEntry]) -> Response:
    base = site_address(request)
    content = atom_feed(entries, base=base, path=request.url.path, page=page, title=title)
    return tagged(request, content, MEDIA_TYPE)

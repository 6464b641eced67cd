"""Files that programs look for at addresses of their own: llms.txt and security.txt."""

from datetime import datetime, time, timedelta

from fastapi import APIRouter, Request, Response

from server.base.database import utc_now
from server.base.services import ServicesDep, site_address
from web.documents import read_documents

router = APIRouter(include_in_schema=False)
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
    """What is here for a program that reads text, with the documents as Markdown."""
    site = site_address(request, services.settings)
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
    """Where to report a weakness (RFC 9116)."""
    site = site_address(request, services.settings)
    contact = services.settings.security_contact or f"{site}/docs/operating#reporting-a-weakness"
    until = datetime.combine(utc_now().date(), time()) + timedelta(days=VALID_DAYS)
    lines = (
        f"Contact: {contact}",
        f"Expires: {until.isoformat()}Z",
        f"Canonical: {site}/.well-known/security.txt",
        "Preferred-Languages: en",
    )
    return Response("\n".join(lines) + "\n", media_type=TEXT)

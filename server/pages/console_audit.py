"""The audit log in the console: filter, page, download."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import ConfigDict, Field

from server.base.services import Services
from server.base.visibility import ORGANISER
from server.pages.console_page import OrganiserDep, read_query
from server.people import audit
from server.people.audit import AuditFilter, read_head

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/audit"
PAGE = 50


class AuditPage(AuditFilter):
    """Filters of the audit log, and the record that a page begins before."""

    model_config = ConfigDict(extra="forbid")

    before: int | None = Field(default=None, ge=1, le=2**31 - 1)


@router.get(ADDRESS)
def audit_page(request: Request, console: OrganiserDep) -> HTMLResponse:
    """The audit log: changes with user and reason, the latest first."""
    asked = read_query(AuditPage, request)
    filters = asked.model_dump(exclude={"before"}, exclude_none=True)
    with console.services.database.read(ORGANISER) as session:
        found = audit.list_records(session, before=asked.before, limit=PAGE + 1, only=asked)
        rows = [_shown(audit.hashed_view(record)) for record in found[:PAGE]]
        head, actions = read_head(session), audit.list_actions(session)
    older = None
    if len(found) > PAGE:
        older = f"{ADDRESS}?{urlencode(filters | {'before': rows[-1]['id']})}"
    return console.page(
        "audit.html",
        rows=rows,
        actions=actions,
        filters=filters,
        head={"id": head.id, "sha256": head.sha256},
        older=older,
    )


@router.get(ADDRESS + "/log.json")
def download(console: OrganiserDep) -> StreamingResponse:
    """The whole log, oldest first, as `finishline admin audit --out` writes it."""
    headers = {"Content-Disposition": 'attachment; filename="log.json"'}
    return StreamingResponse(
        _whole(console.services), media_type="application/json", headers=headers
    )


def _whole(services: Services) -> Iterator[bytes]:
    yield b'{"records": ['
    with services.database.read(ORGANISER) as session:
        for number, record in enumerate(audit.all_records(session)):
            yield (b",\n" if number else b"\n") + orjson.dumps(record)
    yield b"\n]}\n"


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its values as JSON."""
    both = {"before": record["before"], "after": record["after"]}
    return record | {"values": orjson.dumps(both, option=orjson.OPT_INDENT_2).decode()}

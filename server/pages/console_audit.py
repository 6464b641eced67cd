"""The audit log in the console: filter, page, download."""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import ConfigDict, Field
from sqlalchemy.orm import Session

from server.base.services import Services
from server.base.viewer import ORGANISER
from server.pages.audit_rows import AuditRow, fold_imports
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
    # Whether the records of an import have a row each.
    each: bool = False


@router.get(ADDRESS)
def audit_page(request: Request, console: OrganiserDep) -> HTMLResponse:
    """The audit log: changes with user and reason, the latest first."""
    asked = read_query(AuditPage, request)
    filters = asked.model_dump(exclude={"before", "each"}, exclude_none=True)
    with console.services.database.read(ORGANISER) as session:
        records = _records(session, asked)
        if asked.each:
            found = list(islice(records, PAGE + 1))
            rows, is_cut = [AuditRow([record]) for record in found[:PAGE]], len(found) > PAGE
        else:
            rows, is_cut = fold_imports(records, most=PAGE)
        head, actions = read_head(session), audit.list_actions(session)
    kept = filters | ({"each": "true"} if asked.each else {})
    older = None
    if is_cut:
        last = min(record["id"] for row in rows for record in row.records)
        older = f"{ADDRESS}?{urlencode(kept | {'before': last})}"
    return console.page(
        "audit.html",
        rows=[_shown(row) for row in rows],
        actions=actions,
        filters=filters,
        head={"id": head.id, "sha256": head.sha256},
        older=older,
    )


@router.get(ADDRESS + "/log.json")
def download(console: OrganiserDep) -> StreamingResponse:
    """The whole log, oldest first, as `finishline audit-log --out` writes it."""
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


def _records(session: Session, asked: AuditPage) -> Iterator[dict[str, Any]]:
    """Records that a page asks for, the latest first, read a page at a time."""
    before = asked.before
    while True:
        found = audit.list_records(session, before=before, limit=PAGE + 1, only=asked)
        yield from map(audit.hashed_view, found)
        if len(found) <= PAGE:
            return
        before = found[-1].id


def _shown(row: AuditRow) -> dict[str, Any]:
    """A row's latest record, its values as JSON, and of an import its words and its records."""
    record = row.newest
    both = {"before": record["before"], "after": record["after"]}
    records = {"action": record["action"], "actor": record["actor"], "before": record["id"] + 1}
    return record | {
        "values": orjson.dumps(both, option=orjson.OPT_INDENT_2).decode(),
        "words": row.words,
        "first_id": row.records[-1]["id"],
        "count": len(row.records),
        "records": f"{ADDRESS}?{urlencode(records | {'each': 'true'})}",
    }

"""Error responses: problem+json (RFC 9457), or a page where a browser asked."""

import errno
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from secrets import randbelow
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy.exc import (
    DataError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from finishline.rules.errors import RuleError
from server.base.database import DISK_FULL as POSTGRESQL_FULL
from server.base.database import services_of
from server.base.errors import (
    ContentError,
    HttpError,
    ServerError,
    UnavailableError,
    UsedUpError,
    problem,
    problem_of,
)
from server.base.http import RequestMetrics, current, has_body
from server.base.paging import CURSOR_PATTERN
from web.render import render

log = logging.getLogger(__name__)

SPREAD_SECONDS = 8
# Somebody has to make room first.
FULL_DISK_RETRY_SECONDS = 60
OUT_OF_REACH = (OperationalError, InterfaceError, PoolTimeoutError)
OF_THE_DATABASE = (*OUT_OF_REACH, DataError, InternalError, ProgrammingError)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of PostgreSQL after a failover to a read-only standby (25006), to a database without this
# schema (3F000, 42P01), at another revision (42703) or without the rights (42501).
NOT_AS_NEEDED = ("25006", "3F000", "42P01", "42703", "42501")
# Names begin without a dot, because "." and ".." change an address.
NAME_PATTERN = r"^[\w@ -][\w.@ -]*$"
# The name of a person as they write it: with apostrophes and commas, without brackets.
DISPLAY_PATTERN = r"^[\w'’][\w.'’, -]*$"
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
# A single address. The mail server decides about the parts before and behind the @.
EMAIL_PATTERN = r"^[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+$"
# Words for the patterns of fields.
PATTERNS = {
    CURSOR_PATTERN: "the next_cursor of the previous page",
    DOMAIN_PATTERN: "a mail domain, such as uni.example",
    EMAIL_PATTERN: "a mail address, such as olivia@uni.example",
    NAME_PATTERN: "letters, digits, spaces and . @ _ -, with no dot in front",
    DISPLAY_PATTERN: "letters, digits, spaces and . ' ’ , - _, with a letter or digit in front",
}


def _optional(kind: str) -> dict[str, Any]:
    return {"anyOf": [{"type": kind}, {"type": "null"}]}


ERROR_SCHEMA: dict[str, Any] = {
    "title": "Refusal",
    "description": "RFC 9457. `detail` is one sentence to act on; `hint` says what to try; "
    "`problems` lists every fault; `request_id` finds this request in the server's log.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "problems"],
    "properties": {
        "type": {"type": "string", "description": "Address of its explanation on this server."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": _optional("string"),
        "request_id": _optional("string"),
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["file", "line", "field", "message", "expected"],
                "properties": {
                    "file": _optional("string"),
                    "line": _optional("integer"),
                    "field": _optional("string"),
                    "message": {"type": "string"},
                    "expected": _optional("string"),
                },
            },
        },
    },
}
ERROR_ANSWERS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "Refused: `detail` gives the reason and the next step.",
        "content": {"application/problem+json": {"schema": ERROR_SCHEMA}},
    }
}


A_DATE = "a date such as 2026-11-21"
AN_OBJECT = "a JSON object, sent with Content-Type: application/json"
# Expected forms for pydantic's errors, which leave them out.
EXPECTED = {
    "date_from_datetime_parsing": A_DATE,
    "date_parsing": A_DATE,
    "int_parsing": "a whole number",
    "json_invalid": "JSON",
    "model_attributes_type": AN_OBJECT,
}
# Sentences for the framework's errors about bodies.
BODY_ERRORS = {
    "There was an error parsing the body": f"The body cannot be read. Expected {AN_OBJECT}.",
    "Missing boundary in multipart.": "The body has no boundary. Send it as multipart/form-data "
    "with the boundary in its Content-Type, as HTTP clients do for a form with files.",
}


def message_of(item: Mapping[str, Any]) -> str:
    """Describe a validation error by the form that it expects, a pattern in words."""
    expected = PATTERNS.get(item.get("ctx", {}).get("pattern", "")) or EXPECTED.get(item["type"])
    if item["type"] == "missing" and item["loc"] == ("body",):
        expected = AN_OBJECT
    if expected is not None:
        return f"Expected {expected}"
    return str(item["msg"]).removeprefix("Value error, ")


def _name_of(place: Sequence[int | str]) -> str:
    """Name a field, leaving out the types pydantic tried."""
    named = [part for part in map(str, place) if not part.startswith(("function-", "literal["))]
    return ".".join(named)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error as problem+json (RFC 9457), or as a page where a browser asked."""
    libraries = (RuleError, RequestValidationError, HTTPException, ClientDisconnect, OSError)
    for kind in (ServerError, *libraries, *OF_THE_DATABASE, Exception):
        app.add_exception_handler(kind, _answer_error)


def _answer_error(request: Request, found: Exception) -> Response:
    error = _meaning(request, found)
    if error is None:
        log.error("unforeseen error at %s", request.url.path, exc_info=found)
        current().is_told = True
        error = ServerError(
            "Internal error; see the server's log. Nothing of this request was stored."
        )
    elif error.status >= 500:
        log.error("%s cannot be served: %s", request.url.path, error)
    if isinstance(error, UsedUpError):
        services_of(request).of(RequestMetrics).quota_refusals.labels(error.measure).inc()
    return answer(request, error)


def _meaning(request: Request, error: Exception) -> ServerError | None:
    """Translate an error to a ServerError. Returns None for an unforeseen error."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, RuleError):
        return ContentError(str(error), problems=[problem_of(each) for each in error.problems])
    if isinstance(error, RequestValidationError):
        wrong = [problem(_name_of(each["loc"]), message_of(each), None) for each in error.errors()]
        return ContentError(f"{wrong[0]['field']}: {wrong[0]['message']}", problems=wrong)
    if isinstance(error, HTTPException):
        return _of_framework(request, error)
    if isinstance(error, ClientDisconnect):
        return HttpError(400, "The request ended before its body did.")
    cause = getattr(error, "orig", error)
    sqlstate = getattr(cause, "sqlstate", None)
    is_full = sqlstate == POSTGRESQL_FULL or getattr(error, "errno", None) in DISK_FULL
    if is_full or getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        told = "The server's disk is full; nothing of this request was stored. Try again later."
        retry = {"Retry-After": str(FULL_DISK_RETRY_SECONDS)}
        return HttpError(507, told, headers=retry, cause=cause)
    if isinstance(error, DataError):
        log.warning("a value of %s cannot be stored: %s", request.url.path, cause)
        return ContentError(
            "A value is too long, too large, or holds a character that cannot be stored."
        )
    if isinstance(error, OUT_OF_REACH) or sqlstate in NOT_AS_NEEDED:
        told = "The database is unavailable; nothing of this request was stored. Try again."
        return UnavailableError(told, cause=cause)
    return None


# Moved addresses of the API, and their replacements.
MOVED = {
    r"/(trainings|packages|entries)(/.*)?": "POST /api/v1/submissions for code and logs",
    r"/duels": "POST /api/v1/head-to-heads",
    r"/workers/[^/]+/(pause|resume|confirm)": "PATCH /api/v1/workers/NAME",
    r"/queue/(pause|resume)": "PATCH /api/v1/queue",
    r"/verifications/[^/]+/cancel": "POST /api/v1/verifications/ID/cancellation",
    r"/verifications/[^/]+/decide": "POST /api/v1/verifications/ID/decision",
    r"/calibrations/[^/]+/adopt": "POST /api/v1/calibrations/ID/adoption",
    r"/calibrations/[^/]+/cancel": "POST /api/v1/calibrations/ID/cancellation",
    r"/calibrations/[^/]+/continue": "POST /api/v1/calibrations/ID/continuation",
}


def _moved_to(path: str) -> str | None:
    below = path.removeprefix("/api/v1")
    found = (to for pattern, to in MOVED.items() if re.fullmatch(pattern, below))
    return None if below == path else next(found, None)


def _of_framework(request: Request, error: HTTPException) -> HttpError:
    status, detail, path = error.status_code, str(error.detail), request.url.path
    headers = dict(error.headers or {})
    if status == HTTPStatus.NOT_FOUND and (to := _moved_to(path)):
        return HttpError(410, "This address moved.", headers=headers, hint=f"Use {to}.")
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(_methods_of(request))}
    if detail != HTTPStatus(status).phrase:
        detail = BODY_ERRORS.get(detail, detail)
    elif status == HTTPStatus.NOT_FOUND:
        more = " /docs/http-api lists those of the API." if path.startswith("/api/") else ""
        detail = f"There is nothing at this address.{more}"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"This address takes another method: {headers['Allow'] or 'none'}."
    return HttpError(status, detail, headers=headers)


def _methods_of(request: Request) -> list[str]:
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


def answer(request: Request, error: ServerError) -> Response:
    """Answer with a page for a browser outside the API, else with problem+json."""
    status, title, headers = error.status, error.title, error.headers
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and not request.url.path.startswith("/api/"):
        if request.method == "GET" and "Retry-After" in headers:
            # Browsers reload at random moments, or a class refused together would return together.
            headers["Refresh"] = str(int(headers["Retry-After"]) + randbelow(SPREAD_SECONDS))
        page = render(
            "error.html", status=status, title=title, detail=error.told, problems=error.problems
        )
        return HTMLResponse(page, status_code=status, headers=headers)
    return JSONResponse(
        {
            # The page that explains this kind of problem, on the same server.
            "type": f"/docs/problems#{title.lower().replace(' ', '-')}",
            "title": title,
            "status": status,
            "detail": error.detail,
            "hint": error.hint,
            "request_id": correlation_id.get(),
            "problems": error.problems,
        },
        status_code=status,
        media_type="application/problem+json",
        headers=headers,
    )


async def refuse(scope: Scope, receive: Receive, send: Send, error: HTTPException) -> None:
    """Refuse a request in front of the application, and close a connection with an unread body."""
    closes = {"Connection": "close"} if has_body(scope) else {}
    headers = {**(error.headers or {}), **closes}
    response = answer(Request(scope), HttpError(error.status_code, error.detail, headers=headers))
    await response(scope, receive, send)

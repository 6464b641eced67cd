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
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from finishline.rules.errors import RuleError
from server.base.errors import ServerError, UsedUpError, problem, problem_of
from server.base.paging import CURSOR_PATTERN
from server.base.request_context import RequestMetrics, current
from server.base.services import services_of
from web.render import render

log = logging.getLogger(__name__)

RETRY_SECONDS = 1
SPREAD_SECONDS = 8
# Somebody has to make room first.
FULL_DISK_RETRY_SECONDS = 60
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
POSTGRESQL_FULL = "53100"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of PostgreSQL after a failover to a standby that only reads (25006), to a database without
# this schema (3F000, 42P01), or at another revision (42703), and without the rights (42501).
NOT_AS_NEEDED = ("25006", "3F000", "42P01", "42703", "42501")
# No name begins with a dot: "." and ".." are no step of an address.
NAME_PATTERN = r"^[\w@ -][\w.@ -]*$"
# The name of a person as they write it: with apostrophes and commas, without brackets.
DISPLAY_PATTERN = r"^[\w'’][\w.'’, -]*$"
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
# A single address. The mail server decides about the parts before and behind the @.
EMAIL_PATTERN = r"^[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+$"
# Texts that the patterns of fields take.
PATTERNS = {
    CURSOR_PATTERN: "the next_cursor of the previous page",
    DOMAIN_PATTERN: "a mail domain, such as uni.example",
    EMAIL_PATTERN: "a mail address, such as olivia@uni.example",
    NAME_PATTERN: "letters, digits, spaces and . @ _ -, with no dot in front",
    DISPLAY_PATTERN: "letters, digits, spaces and . ' ’ , - _, with a letter or digit in front",
}


def _is_full(cause: object) -> bool:
    """Whether a database says that its disk is full."""
    sqlite_code: int | None = getattr(cause, "sqlite_errorcode", None)
    sqlstate: str | None = getattr(cause, "sqlstate", None)
    return sqlite_code == sqlite3.SQLITE_FULL or sqlstate == POSTGRESQL_FULL


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
# Kinds of pydantic's errors whose own words do not say what to send.
EXPECTED = {
    "date_from_datetime_parsing": A_DATE,
    "date_parsing": A_DATE,
    "int_parsing": "a whole number",
    "json_invalid": "JSON",
    "model_attributes_type": AN_OBJECT,
}
# Words of the framework on bodies that it cannot take apart.
BODY_ERRORS = {
    "There was an error parsing the body": f"The body cannot be read. Expected {AN_OBJECT}.",
    "Missing boundary in multipart.": "The body has no boundary. Send it as multipart/form-data "
    "with the boundary in its Content-Type, as HTTP clients do for a form with files.",
}


def message_of(item: Mapping[str, Any]) -> str:
    """The words of a validation error. A pattern is told as the text that it asks for."""
    expected = PATTERNS.get(item.get("ctx", {}).get("pattern", "")) or EXPECTED.get(item["type"])
    if item["type"] == "missing" and item["loc"] == ("body",):
        expected = AN_OBJECT
    if expected is not None:
        return f"Expected {expected}"
    return str(item["msg"]).removeprefix("Value error, ")


def _name_of(place: Sequence[int | str]) -> str:
    """Name of a field, without the types that it may have, among which pydantic looks."""
    named = [part for part in map(str, place) if not part.startswith(("function-", "literal["))]
    return ".".join(named)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error as problem+json (RFC 9457), or as a page where a browser asked."""

    @app.exception_handler(ServerError)
    def _server_error(request: Request, error: ServerError) -> Response:
        headers = None
        if error.retry_seconds is not None:
            headers = {"Retry-After": str(error.retry_seconds)}
        if error.status >= 500:
            log.error("%s cannot be served: %s", request.url.path, error)
        if isinstance(error, UsedUpError):
            services_of(request).of(RequestMetrics).quota_refusals.labels(error.measure).inc()
        words = error.title, error.detail, error.problems
        return answer(request, error.status, *words, headers, hint=error.hint)

    @app.exception_handler(RuleError)
    def _rule_error(request: Request, error: RuleError) -> Response:
        problems = [problem_of(problem) for problem in error.problems]
        return answer(request, 422, "Refused", str(error), problems)

    @app.exception_handler(RequestValidationError)
    def _invalid_request(request: Request, error: RequestValidationError) -> Response:
        problems = [
            problem(_name_of(item["loc"]), message_of(item), None) for item in error.errors()
        ]
        first = problems[0]
        return answer(request, 422, "Refused", f"{first['field']}: {first['message']}", problems)

    @app.exception_handler(HTTPException)
    def _http_error(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        if error.status_code == HTTPStatus.NOT_FOUND and (to := _moved_to(request.url.path)):
            detail = "This address moved."
            return answer(request, 410, "Gone", detail, [], headers, hint=f"Use {to}.")
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers = {"Allow": ", ".join(_methods_of(request))}
        title = HTTPStatus(error.status_code).phrase
        detail = _sentence(error, request, headers)
        return answer(request, error.status_code, title, detail, [], headers)

    @app.exception_handler(DataError)
    def _unstorable(request: Request, error: DataError) -> Response:
        log.warning("a value of %s cannot be stored: %s", request.url.path, error.orig)
        detail = "A value is too long, too large, or holds a character that cannot be stored."
        return answer(request, 422, "Refused", detail, [])

    @app.exception_handler(OperationalError)
    @app.exception_handler(InterfaceError)
    @app.exception_handler(PoolTimeoutError)
    def _no_database(request: Request, error: SQLAlchemyError) -> Response:
        cause = getattr(error, "orig", error)
        if _is_full(cause):
            return _no_room(request, error)
        log.error("the database did not answer %s: %s", request.url.path, cause)
        detail = "The database is unavailable; nothing of this request was stored. Try again."
        retry = {"Retry-After": str(RETRY_SECONDS)}
        return answer(request, 503, "Service unavailable", detail, [], retry)

    @app.exception_handler(InternalError)
    @app.exception_handler(ProgrammingError)
    def _database_not_as_needed(request: Request, error: DBAPIError) -> Response:
        if getattr(error.orig, "sqlstate", None) not in NOT_AS_NEEDED:
            return _unforeseen(request, error)
        return _no_database(request, error)

    @app.exception_handler(OSError)
    def _no_space(request: Request, error: OSError) -> Response:
        if error.errno not in DISK_FULL:
            return _unforeseen(request, error)
        return _no_room(request, error)

    def _no_room(request: Request, error: Exception) -> Response:
        log.error("no room for %s: %s", request.url.path, error)
        detail = "The server's disk is full; nothing of this request was stored. Try again later."
        retry = {"Retry-After": str(FULL_DISK_RETRY_SECONDS)}
        return answer(request, 507, "Insufficient storage", detail, [], retry)

    @app.exception_handler(ClientDisconnect)
    def _gone(request: Request, _error: ClientDisconnect) -> Response:
        return answer(request, 400, "Bad Request", "The request ended before its body did.", [])

    @app.exception_handler(Exception)
    def _unforeseen(request: Request, error: Exception) -> Response:
        log.error("unforeseen error at %s", request.url.path, exc_info=error)
        current().is_told = True
        detail = "Internal error; see the server's log. Nothing of this request was stored."
        return answer(request, 500, "Internal error", detail, [])


# Addresses of the API that moved, and where to.
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


def _sentence(error: HTTPException, request: Request, headers: Mapping[str, str] | None) -> str:
    """The framework's own errors as sentences. Those of others as they are."""
    if error.detail != HTTPStatus(error.status_code).phrase:
        return BODY_ERRORS.get(error.detail, str(error.detail))
    if error.status_code == HTTPStatus.NOT_FOUND:
        in_api = request.url.path.startswith("/api/")
        more = " /docs/http-api lists those of the API." if in_api else ""
        return f"There is nothing at this address.{more}"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"This address takes another method: {(headers or {}).get('Allow') or 'none'}."
    return str(error.detail)


def _methods_of(request: Request) -> list[str]:
    """The methods that the address asked for has, in whichever routes."""
    routes = request.app.routes
    return [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]


def answer(
    request: Request,
    status: int,
    title: str,
    detail: str,
    problems: list[dict[str, Any]],
    headers: dict[str, str] | None = None,
    *,
    hint: str | None = None,
) -> Response:
    """The error as a page for a browser outside the API, else as problem+json."""
    if status == 401:
        headers = (headers or {}) | {"WWW-Authenticate": "Bearer"}
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and not request.url.path.startswith("/api/"):
        told = f"{detail} {hint}" if hint else detail
        page = render("error.html", status=status, title=title, detail=told, problems=problems)
        return HTMLResponse(page, status_code=status, headers=_loads_again(request, headers))
    return JSONResponse(
        {
            "type": problem_type(title),
            "title": title,
            "status": status,
            "detail": detail,
            "hint": hint,
            "request_id": correlation_id.get(),
            "problems": problems,
        },
        status_code=status,
        media_type="application/problem+json",
        headers=headers,
    )


def _loads_again(request: Request, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers of a page that asks for patience: a browser loads it again by itself.

    A class that was refused together does not come back together.
    """
    wait = (headers or {}).get("Retry-After")
    if headers is None or wait is None or request.method != "GET":
        return headers
    return {**headers, "Refresh": str(int(wait) + randbelow(SPREAD_SECONDS))}


def problem_type(title: str) -> str:
    """Address of the page that explains a kind of problem, on the same server."""
    return f"/docs/problems#{title.lower().replace(' ', '-')}"


TITLES = {
    413: "Too large", 415: "Unsupported media type", 429: "Too many requests", 503: "Busy",
}  # fmt: skip


async def refuse(scope: Scope, receive: Receive, send: Send, error: HTTPException) -> None:
    """Refuse a request from in front of the application.

    The body of the request is not read, so a connection on which one comes is closed.
    """
    sent = dict(error.headers or {})
    if has_body(scope):
        sent["Connection"] = "close"
    status = error.status_code
    response = answer(Request(scope), status, TITLES[status], error.detail, [], sent)
    await response(scope, receive, send)


def has_body(scope: Scope) -> bool:
    """Whether a request says that a body follows."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

"""Refusals that are sent from in front of the application: problem+json, or a page to a browser."""

from collections.abc import Mapping

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from server.error_answers import answer

TITLES = {429: "Too many requests", 503: "Busy"}


def refusal(scope: Scope, status: int, detail: str, headers: Mapping[str, str]) -> Response:
    """The answer that refuses a request."""
    return answer(Request(scope), status, TITLES[status], detail, [], dict(headers))


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    status: int,
    detail: str,
    headers: Mapping[str, str],
) -> None:
    """Refuse a request. One whose body was not read closes its connection: the rest is not read."""
    if _has_body(scope):
        headers = {**headers, "Connection": "close"}
    await refusal(scope, status, detail, headers)(scope, receive, send)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )

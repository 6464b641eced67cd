"""Parse a response of the server as JSON, or raise the error it reports."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from finishline.client.errors import (
    Conflict,
    FinishlineError,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Problem,
    Refused,
    TooManyRequests,
    Unavailable,
)

ERRORS: dict[int, type[FinishlineError]] = {
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}
# Where in a request a field stood, which the user of a client has never seen.
_PLACE = re.compile(r"^(?:body|query|path)\.")


def document_of(answer: httpx2.Response, *, url: str) -> Any:
    """The JSON of an answer, None if it is empty. Raises Unavailable if it is something else."""
    if answer.status_code == 204 or not answer.content:
        return None
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            f"{url} is not a Finishline server: its response is not JSON.",
            status=answer.status_code,
        ) from error


def error_of(answer: httpx2.Response) -> FinishlineError:
    """Error reported by a response (from its problem+json, if any)."""
    status = answer.status_code
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        document = None
    told = document if isinstance(document, dict) else {}
    detail = str(told.get("detail") or told.get("title") or "").strip()
    listed = told.get("problems")
    listed = listed if isinstance(listed, list) else []
    problems = [item for item in listed if isinstance(item, dict)]
    if problems and detail.startswith(f"{problems[0].get('field')}: "):
        detail = _PLACE.sub("", detail)
    usual = Unavailable if status >= 500 or status < 400 else Refused
    return ERRORS.get(status, usual)(
        detail or f"{answer.url} returned {status} {answer.reason_phrase}.",
        status=status,
        problems=[_problem(item) for item in problems],
        retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After")),
    )


def retry_after_seconds(header: str | None) -> float | None:
    """The pause that a Retry-After asks for, in seconds or until a date; None for any other text.

    Source: RFC 9110, section 10.2.3.
    """
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header.strip())
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def _problem(item: dict[str, Any]) -> Problem:
    line = item.get("line")
    field = _text(item.get("field"))
    if field is not None and item.get("file") is None:
        field = _PLACE.sub("", field)
    return Problem(
        message=str(item.get("message") or "not accepted"),
        file=_text(item.get("file")),
        line=line if isinstance(line, int) else None,
        field=field,
        expected=_text(item.get("expected")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)

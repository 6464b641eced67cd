"""Errors between a program and a server, one class for each way to go on."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

if TYPE_CHECKING:
    import httpx2

# Place of a field in a request, which the user of a client never sees.
_PLACE = re.compile(r"^(?:body|query|path)\.")


@dataclass(frozen=True)
class Problem:
    """One fault in an input: its place, the fault and the expectation."""

    message: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        return str(RuleError(**vars(self)))


def told_besides(detail: str, problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return the problems, unless the detail already tells the only one."""
    if len(problems) == 1:
        [only] = problems
        if only.message in detail and (only.expected or "") in detail:
            return ()
    return problems


class FinishlineError(Exception):
    """The operation failed. `detail` is one sentence that says why.

    `status` is from the HTTP response, if any. `problems` lists every fault of an input.
    `retry_after_seconds` is how long the server asks to wait.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        problems: Sequence[Problem] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        self.detail = detail
        self.status = status
        self.problems = tuple(problems)
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)

    def __str__(self) -> str:
        besides = told_besides(self.detail, self.problems)
        return "\n".join([self.detail, *(f"  {problem}" for problem in besides)])


class NotSignedIn(FinishlineError):
    """The token is missing, unknown, expired or revoked (401)."""


class NotAllowed(FinishlineError):
    """The token's role forbids this (403)."""


class NotFound(FinishlineError):
    """There is no such thing (404)."""


class Conflict(FinishlineError):
    """The resource's state forbids this (409)."""


class Refused(FinishlineError):
    """A rule refuses the input, here or on the server. `problems` says where and why."""


class TooManyRequests(FinishlineError):
    """The server asks to come back later (429)."""


class Unavailable(FinishlineError):
    """The server is unreachable or broken. A retry may succeed later."""


class NoAnswer(Unavailable):
    """No response from the address, or the connection broke."""


ERRORS: dict[int, type[FinishlineError]] = {
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def error_of(answer: "httpx2.Response") -> FinishlineError:
    """Read the error of a response from its problem+json, if any."""
    status = answer.status_code
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        document = None
    stated = document if isinstance(document, dict) else {}
    detail = str(stated.get("detail") or stated.get("title") or "").strip()
    hint = f" Hint: {stated['hint']}" if detail and stated.get("hint") else ""
    listed = stated.get("problems")
    problems = [item for item in listed if isinstance(item, dict)] if type(listed) is list else []
    if problems and detail.startswith(f"{problems[0].get('field')}: "):
        detail = _PLACE.sub("", detail)
    usual = Unavailable if status >= 500 or status < 400 else Refused
    return ERRORS.get(status, usual)(
        detail + hint or f"{answer.url} returned {status} {answer.reason_phrase}.",
        status=status,
        problems=[_problem(item) for item in problems],
        retry_after_seconds=_retry_after_seconds(answer.headers.get("Retry-After")),
    )


def _problem(item: dict[str, Any]) -> Problem:
    names = ("file", "field", "expected")
    file, field, expected = (None if item.get(n) is None else str(item[n]) for n in names)
    return Problem(
        message=str(item.get("message") or "not accepted"),
        file=file,
        line=item["line"] if isinstance(item.get("line"), int) else None,
        field=_PLACE.sub("", field) if field is not None and file is None else field,
        expected=expected,
    )


def _retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After as seconds or a date, if it is one. Source: RFC 9110, section 10.2.3."""
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


def problems_of(errors: Iterable[RuleError]) -> list[Problem]:
    return [
        Problem(each.message, each.file, each.line, each.field, each.expected) for each in errors
    ]


def refusal(error: RuleError) -> Refused:
    problems = problems_of(error.problems)
    count = count_text(len(problems), "problem")
    detail = f"The input breaks the rules: {count}. Correct it and try again."
    return Refused(detail, problems=problems)

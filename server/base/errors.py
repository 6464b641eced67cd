"""Errors of the server, each with its HTTP status and a sentence to act on."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from finishline.rules.errors import RuleError
from finishline.rules.text import did_you_mean


class ServerError(Exception):
    """An error with an HTTP status and a sentence that names the remedy.

    The same request may succeed after `retry_seconds`. `cause` may name hosts: only logs and
    administrators get it.
    """

    status = 500
    title = "Internal error"
    retry_seconds: int | None = None

    def __init__(
        self,
        detail: str,
        *,
        problems: list[dict[str, Any]] | None = None,
        hint: str | None = None,
        cause: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail if cause is None else f"{detail} ({cause})")
        self.detail = detail
        self.problems = problems or []
        self.hint = hint
        self.headers = dict(headers or {})
        if self.retry_seconds is not None:
            self.headers["Retry-After"] = str(self.retry_seconds)
        if self.status == HTTPStatus.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"

    @property
    def told(self) -> str:
        """The sentence and its hint, for a page."""
        return f"{self.detail} {self.hint}" if self.hint else self.detail


def problem(
    field: str | None,
    message: str,
    expected: str | None,
    *,
    file: str | None = None,
    line: int | None = None,
) -> dict[str, Any]:
    """Describe a fault in a field of a request or of a file, as an entry of `problems`."""
    return {"file": file, "line": line, "field": field, "message": message, "expected": expected}


class NotSignedInError(ServerError):
    """The token is missing, unknown, expired or revoked."""

    status = 401
    title = "Not signed in"


class NotAllowedError(ServerError):
    """Signed in, but not for this."""

    status = 403
    title = "Not allowed"


class NotFoundError(ServerError):
    """There is no such thing."""

    status = 404
    title = "Not found"


# Commands and pages listing things of a kind.
LISTED = {
    "attempt": "the page of its verification names its attempts",
    "calibration": "`finishline benchmark calibrate list` or /calibrations lists them",
    "delivery": "`finishline account webhook deliveries ID` lists a webhook's",
    "invitation": "`finishline admin invite list` lists yours",
    "organisation": "`finishline admin organisation list` lists them; "
    "an admin adds one: `finishline admin organisation add`",
    "price": "`finishline admin price list` or /prices lists them",
    "submission": "`finishline board BENCHMARK` or /submissions lists them",
    "token": "`finishline account token list` lists yours, "
    "`finishline admin token list` those of others",
    "user": "`finishline admin user list` lists them; "
    "an admin adds one: `finishline admin user add`",
    "verification": "`finishline show SUBMISSION` lists a submission's verifications",
    "webhook": "`finishline account webhook list` lists yours",
    "worker": "`finishline admin worker list` or /workers lists them",
}
LONGEST_NAME = 100


def no_such(
    kind: str, name: object, *, of: str = "There is no", known: Iterable[str] = ()
) -> NotFoundError:
    """Make the error for an unknown name or id of a kind in LISTED, with a similar `known` one."""
    shown = repr(name[:LONGEST_NAME]) if isinstance(name, str) else str(name)
    return NotFoundError(f"{of} {kind} {shown}{did_you_mean(str(name), known)}; {LISTED[kind]}.")


class ConflictError(ServerError):
    """The request conflicts with the state of its resource."""

    status = 409
    title = "Conflict"


class ContentError(ServerError):
    """The content of a well-formed request is refused."""

    status = 422
    title = "Refused"


class UsedUpError(ServerError):
    """A quota is used up. There is room again after `retry_seconds`."""

    status = 429
    title = "Quota used up"

    def __init__(self, detail: str, *, measure: str, retry_seconds: int) -> None:
        self.measure = measure
        self.retry_seconds = retry_seconds
        super().__init__(detail)


class UnavailableError(ServerError):
    """A service such as the database is away. The same request may succeed later."""

    status = 503
    title = "Service unavailable"
    retry_seconds = 1


# Titles of errors by their status.
TITLES = {
    413: "Too large", 415: "Unsupported media type", 426: "Upgrade required",
    429: "Too many requests", 501: "Not installed", 503: "Busy", 507: "Insufficient storage",
}  # fmt: skip


class HttpError(ServerError):
    """An error of any other status."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        self.status = status
        self.title = TITLES.get(status) or HTTPStatus(status).phrase
        super().__init__(detail, **more)


class LostFileError(ServerError):
    """A row's file is missing from the store."""

    title = "Lost file"

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"The file {sha256} of this submission is missing from the artifact store. Restore "
            "it from a backup."
        )


def problem_of(error: RuleError) -> dict[str, Any]:
    """Turn a rule error into an entry of `problems`."""
    return problem(error.field, error.message, error.expected, file=error.file, line=error.line)

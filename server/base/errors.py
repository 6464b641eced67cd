"""Errors of the server, each with its HTTP status and a sentence to act on."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from finishline.rules.errors import RuleError
from finishline.rules.text import did_you_mean


class ServerError(Exception):
    """An error with an HTTP status and a sentence that names the remedy.

    `retry_seconds` is when the same request may succeed, if that is known. The `cause` may name
    hosts: it is for logs and administrators, not for the caller.
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
    """A fault in a field of a request or of a file, as an entry of `problems`."""
    return {"file": file, "line": line, "field": field, "message": message, "expected": expected}


class NotSignedInError(ServerError):
    """No token, or one that is unknown, expired or revoked."""

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


# Where to look for the things of a kind, in the words of the command and of the pages.
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
    """The error for a name or id of a kind in LISTED that nothing has, with where to look.

    A name among those `known` that is nearly this one is named.
    """
    shown = repr(name[:LONGEST_NAME]) if isinstance(name, str) else str(name)
    return NotFoundError(f"{of} {kind} {shown}{did_you_mean(str(name), known)}; {LISTED[kind]}.")


class ConflictError(ServerError):
    """The request conflicts with the state of its resource."""

    status = 409
    title = "Conflict"


class ContentError(ServerError):
    """The request is well formed, but its content is not accepted."""

    status = 422
    title = "Refused"


class UsedUpError(ServerError):
    """A quota is used up. There is room again after so many seconds, if that is known."""

    status = 429
    title = "Quota used up"

    def __init__(self, detail: str, *, measure: str, retry_seconds: int) -> None:
        self.measure = measure
        self.retry_seconds = retry_seconds
        super().__init__(detail)


class UnavailableError(ServerError):
    """Something the server stands on does not answer. The same request may succeed later."""

    status = 503
    title = "Service unavailable"
    retry_seconds = 1


# Of the errors that have a status alone.
TITLES = {
    413: "Too large", 415: "Unsupported media type", 426: "Upgrade required",
    429: "Too many requests", 501: "Not installed", 503: "Busy", 507: "Insufficient storage",
}  # fmt: skip


class HttpError(ServerError):
    """An error by its status, which nobody catches by name."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        self.status = status
        self.title = TITLES.get(status) or HTTPStatus(status).phrase
        super().__init__(detail, **more)


class LostFileError(ServerError):
    """A file that a row names is not where it was kept."""

    title = "Lost file"

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"The file {sha256} of this submission is missing from the artifact store. Restore "
            "it from a backup."
        )


def problem_of(error: RuleError) -> dict[str, Any]:
    """One rule error as an entry of `problems`."""
    return problem(error.field, error.message, error.expected, file=error.file, line=error.line)

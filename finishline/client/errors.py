"""Errors between a program and a server, one class for each way to go on."""

from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.errors import RuleError


@dataclass(frozen=True)
class Problem:
    """One fault in an input: its place, the fault and the expectation."""

    message: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        return str(
            RuleError(
                self.message,
                file=self.file,
                line=self.line,
                field=self.field,
                expected=self.expected,
            )
        )


def told_besides(detail: str, problems: Sequence[Problem]) -> Sequence[Problem]:
    """The problems, but one alone that the sentence has told already."""
    if len(problems) == 1:
        [only] = problems
        if only.message in detail and (only.expected or "") in detail:
            return ()
    return problems


class FinishlineError(Exception):
    """The operation failed; `detail` is one sentence that says why.

    `status` is that of the HTTP response, None where there was none. `problems` lists every fault
    of an input. `retry_after_seconds` is how long the server asks to wait.
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
    """No token, or one that is unknown, expired or revoked (401)."""


class NotAllowed(FinishlineError):
    """The token's role is not one that may do this (403)."""


class NotFound(FinishlineError):
    """There is no such thing (404)."""


class Conflict(FinishlineError):
    """The resource's state does not allow this (409)."""


class Refused(FinishlineError):
    """A rule refuses the input, here or on the server; `problems` says where and why."""


class TooManyRequests(FinishlineError):
    """The server asks to come back later (429)."""


class Unavailable(FinishlineError):
    """The server does not answer or is not working; a retry may succeed later."""


class NoAnswer(Unavailable):
    """No response from the address, or the connection broke."""

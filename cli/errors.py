"""How a command ends when it cannot do what was asked: one sentence and one exit code."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from rules.errors import RuleError

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it.


class ExitCode(IntEnum):
    """What the exit code of every command means."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_VERIFIED = 3
    SERVER = 4
    NOT_ALLOWED = 5
    NOT_FOUND = 6


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input: where, what, and what was expected."""

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


class CliError(Exception):
    """A command cannot go on; `message` is one sentence that says what to do."""

    def __init__(
        self, message: str, *, exit_code: ExitCode, problems: Sequence[Problem] = ()
    ) -> None:
        self.message = message
        self.exit_code = exit_code
        self.problems = tuple(problems)
        super().__init__(message)

    def document(self) -> dict[str, Any]:
        """The error as the JSON that --json writes to stderr."""
        return {
            "error": {
                "exit_code": int(self.exit_code),
                "kind": self.exit_code.name.lower(),
                "message": self.message,
                "problems": [asdict(problem) for problem in self.problems],
            }
        }


def refusal(error: RuleError) -> CliError:
    """The CliError for an input that breaks one or several rules."""
    problems = [
        Problem(
            message=each.message,
            file=each.file,
            line=each.line,
            field=each.field,
            expected=each.expected,
        )
        for each in error.problems
    ]
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return CliError(
        f"The rules refuse this input: {count}; mend what is listed and try again.",
        exit_code=ExitCode.REFUSED,
        problems=problems,
    )

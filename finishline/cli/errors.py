"""Failure of a command: one sentence and one exit code."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from typing import Any

from finishline.client.errors import Problem
from finishline.places import installed_server
from finishline.rules.errors import RuleError

__all__ = [
    "INTERRUPTED",
    "INTERRUPTION",
    "CliError",
    "ExitCode",
    "Problem",
    "refusal",
    "require_server",
]

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it.
INTERRUPTION = "Interrupted by Ctrl-C."


class ExitCode(IntEnum):
    """Meanings of every command's exit code."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_VERIFIED = 3
    SERVER = 4
    NOT_ALLOWED = 5
    NOT_FOUND = 6


class CliError(Exception):
    """A command cannot go on; `message` is one sentence with the remedy."""

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
    from finishline.client import files  # Reads submissions, which few commands need.

    refused = files.refusal(error)
    return CliError(refused.detail, exit_code=ExitCode.REFUSED, problems=refused.problems)


def require_server(command: str) -> None:
    """Raise CliError unless finishline-server is installed beside this command."""
    if installed_server() is None:
        raise CliError(
            f"`finishline {command}` needs the distribution finishline-server, which is not "
            "installed here; in the folder of Finishline's source, install it with "
            "`pip install ./finishline '.[worker]'`.",
            exit_code=ExitCode.SERVER,
        )

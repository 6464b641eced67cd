"""Fail a command with one sentence and one exit code."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from typing import Any

from finishline.client.errors import (
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Problem,
    TooManyRequests,
    Unavailable,
)
from finishline.places import installed_server

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it.
INTERRUPTION = "Interrupted by Ctrl-C."


class ExitCode(IntEnum):
    """Exit codes of all commands."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_VERIFIED = 3
    SERVER = 4
    NOT_ALLOWED = 5
    NOT_FOUND = 6
    A_FASTER = 10
    NOT_SEPARABLE = 11


EXIT_CODES: dict[type[FinishlineError], ExitCode] = {
    NotSignedIn: ExitCode.NOT_ALLOWED,
    NotAllowed: ExitCode.NOT_ALLOWED,
    NotFound: ExitCode.NOT_FOUND,
    TooManyRequests: ExitCode.SERVER,
    Unavailable: ExitCode.SERVER,
    NoAnswer: ExitCode.SERVER,
}


class CliError(Exception):
    """A command has to stop. `message` is one sentence with the remedy."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: ExitCode = ExitCode.REFUSED,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.message = message
        self.exit_code = exit_code
        self.problems = tuple(problems)
        super().__init__(message)

    def document(self) -> dict[str, Any]:
        """Return the error as the JSON that --json writes to stderr."""
        return {
            "error": {
                "exit_code": int(self.exit_code),
                "kind": self.exit_code.name.lower(),
                "message": self.message,
                "problems": [asdict(problem) for problem in self.problems],
            }
        }


class UsageError(CliError):
    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ExitCode.USAGE)


# The next step after an error, where the server can't know it.
HINTS: dict[type[FinishlineError], str] = {
    NotSignedIn: "Log in with `finishline login URL`, or set FINISHLINE_TOKEN to a valid token.",
    NotAllowed: "`finishline account` shows your role.",
    NoAnswer: "Name a running server with `finishline login URL`, --url or FINISHLINE_URL, or "
    "start one with `finishline up`.",
    Unavailable: "Check --url, and that the server runs.",
}


def cli_error(error: FinishlineError) -> CliError:
    """Turn an error of the client into a command's, with the next step at a terminal."""
    hint = HINTS.get(type(error))
    message = f"{error.detail.removesuffix('.')}. {hint}" if hint else error.detail
    code = EXIT_CODES.get(type(error), ExitCode.REFUSED)
    return CliError(message, exit_code=code, problems=error.problems)


def require_server(command: str) -> None:
    """Raise CliError unless finishline-server is installed too."""
    if installed_server() is None:
        raise server_missing(command)


def server_missing(command: str) -> CliError:
    return CliError(
        f"`finishline {command}` needs the distribution finishline-server, which is not "
        "installed here; in the folder of Finishline's source, install it with "
        "`pip install ./finishline '.[worker]'`.",
        exit_code=ExitCode.SERVER,
    )

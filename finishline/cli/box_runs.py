"""Programs of a worker's box on this machine, by the events that they write."""

from collections.abc import Iterator
from typing import Any

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import child_events, python_module

TRAIN, TRY_TASK = "worker.box.local", "worker.box.trial"
# Exit codes of these programs.
FAILED = {
    2: ExitCode.REFUSED,
    3: ExitCode.NOT_VERIFIED,
    4: ExitCode.SERVER,
}


def box_events(program: str, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Events of a program, the last of kind `exit`. Raises CliError if it could not begin."""
    for event in child_events(python_module(program, *arguments)):
        if event.get("kind") == "exit" and event["code"] not in (0, 3):
            code = event["code"]
            raise CliError(
                event["said"] or f"exit code {code}",
                exit_code=FAILED.get(code, ExitCode.SERVER),
            )
        if "kind" in event:
            yield event

"""Programs of a worker's box on this machine, by the events that they write."""

import json
import tempfile
from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import end, python_module, spawn

TRAIN, TRY_TASK = "worker.box.local", "worker.box.trial"
# Exit codes of these programs.
FAILED = {
    2: ExitCode.REFUSED,
    3: ExitCode.NOT_VERIFIED,
    4: ExitCode.SERVER,
}


def box_events(program: str, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Events of a program, the last of kind `exit`. Raises CliError if it could not begin."""
    with tempfile.TemporaryFile() as errors:
        child = spawn(python_module(program, *arguments), stdout=PIPE, stderr=errors)
        try:
            assert child.stdout is not None  # noqa: S101  (it was asked for just above)
            for line in child.stdout:
                yield json.loads(line)
            code = child.wait()
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        if code not in (0, 3):
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            message = said[-1].removeprefix("error: ") if said else f"exit code {code}"
            raise CliError(message, exit_code=FAILED.get(code, ExitCode.SERVER))
        yield {"kind": "exit", "code": code}

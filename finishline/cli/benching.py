"""The throughput of a reference on this machine, as `python -m worker.bench` measures it."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import end, python_module, spawn

DOING = {
    "throughput": "training and inferring on made-up data",
    "audit": "watching one training step: precision, FLOPs",
    "roofs": "measuring the roofs of this machine",
}


@dataclass(frozen=True)
class BenchOptions:
    """What to measure: the benchmark's file, with which settings, where, for how long."""

    benchmark_file: Path
    settings: Sequence[str] = ()
    device: str | None = None
    threads: int = 1
    seconds: float = 5.0

    def command(self) -> list[str]:
        """The command line of the worker's measurement."""
        arguments = [str(self.benchmark_file), "--threads", str(self.threads)]
        arguments += ["--seconds", str(self.seconds)]
        for setting in self.settings:
            arguments += ["--set", setting]
        if self.device is not None:
            arguments += ["--device", self.device]
        return python_module("worker.bench", *arguments)


def run_bench(options: BenchOptions, *, told: Callable[[str], None]) -> dict[str, Any]:
    """The result; `told` hears what is measured next. Raises CliError with the last words.

    Whatever ends this, nothing that was started is left running.
    """
    with tempfile.TemporaryFile() as errors:
        child = spawn(options.command(), stdout=PIPE, stderr=errors)
        try:
            assert child.stdout is not None  # noqa: S101  (it was asked for just above)
            result = _follow(child.stdout, told)
            code = child.wait()
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        if code == 0 and result is not None:
            return result
        errors.seek(0)
        said = [line.strip() for line in errors.read().decode(errors="replace").splitlines()]
        last = next((line for line in reversed(said) if line), f"it ended with exit code {code}")
        raise CliError(last.removeprefix("error: "), exit_code=ExitCode.REFUSED)


def _follow(lines: Any, told: Callable[[str], None]) -> dict[str, Any] | None:
    result = None
    for line in lines:
        try:
            event: Mapping[str, Any] = json.loads(line)
        except ValueError:
            continue  # A library's own print is no event.
        if event.get("kind") == "doing":
            told(DOING.get(str(event.get("doing")), str(event.get("doing"))))
        elif event.get("kind") == "result":
            result = dict(event["result"])
    return result

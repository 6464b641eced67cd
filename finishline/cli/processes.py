"""Start child processes that end with their parent, read their events, and train in one."""

import contextlib
import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from finishline.cli.errors import CliError, ExitCode, UsageError, require_server
from finishline.devices import Devices, choose_device, find_devices, without_platform
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import MAX_SEED
from finishline.rules.text import count_text

PR_SET_PDEATHSIG = 1
# Looked up before any fork: a child between fork and exec must not load libraries.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

Stream = int | IO[bytes]


def python_module(module: str, *arguments: str) -> list[str]:
    """Return the command for an installed module. -P keeps the current folder from shadowing it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: Stream | None = None,
    stderr: Stream | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> "subprocess.Popen[bytes]":
    """Start a process in a new session, with an empty standard input.

    On Linux the end of the starting thread sends `death_signal`. So use the main thread.
    """
    return subprocess.Popen(
        list(command),
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_die_with_parent(os.getpid(), death_signal) if _PRCTL else None,
    )


def _die_with_parent(parent_pid: int, death_signal: signal.Signals) -> Callable[[], None]:
    def before_exec() -> None:
        if _PRCTL is not None:
            _PRCTL(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        # The parent may have gone before the line above.
        if os.getppid() != parent_pid:
            os._exit(1)

    return before_exec


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal every process in the group of `pid`. It may have ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end(process: "subprocess.Popen[bytes]", *, limit_seconds: float = 5.0) -> None:
    """Ask a process to end, wait up to a limit, then kill its group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_seconds)
    signal_group(process.pid, signal.SIGKILL)
    process.wait()


def child_events(command: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a child process: lines with a JSON object. Others are skipped.

    The last is `exit`, with `code` and the last line `said` on standard error. The child ends when
    the caller stops iterating.
    """
    said = ""
    with tempfile.TemporaryFile() as errors:
        child = spawn(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            assert child.stdout is not None  # noqa: S101  (it was asked for just above)
            for line in child.stdout:
                with contextlib.suppress(ValueError, RecursionError):
                    if isinstance(event := json.loads(line), dict):
                        yield event
            code = child.wait()
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        errors.seek(0)
        for line in errors:
            said = line.decode(errors="replace").strip() or said
    yield {"kind": "exit", "code": code, "said": said.removeprefix("error: ")}


# Programs of a worker's sandbox, and the meanings of their exit codes.
TRAIN, TRY_TASK = "worker.sandbox.local", "worker.sandbox.trial"
FAILED = {2: ExitCode.REFUSED, 3: ExitCode.NOT_VERIFIED, 4: ExitCode.SERVER}


def box_events(program: str, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a sandbox's events, the last of kind `exit`. Raises CliError if it failed to begin."""
    for event in child_events(python_module(program, *arguments)):
        if event.get("kind") == "exit" and (code := event["code"]) not in (0, 3):
            why = event["said"] or f"exit code {code}"
            raise CliError(why, exit_code=FAILED.get(code, ExitCode.SERVER))
        if "kind" in event:
            yield event


REFUSED_CODE = 2  # The worker's local training refused its input.


@dataclass(frozen=True)
class Training:
    """Options of a training: the benchmark's file, count of runs, output folder and settings."""

    benchmark_file: Path
    out: Path
    runs: int
    settings: Sequence[str] = ()
    seed: int | None = None
    division: str | None = None
    device: str | None = None
    data: Path = Path("var/data")
    hardware_class: str | None = None
    precision: str | None = None

    def command(self) -> list[str]:
        named = {
            "--runs": self.runs,
            "--out": self.out,
            "--data-dir": self.data,
            "--seed": self.seed,
            "--division": self.division,
            "--precision": self.precision,
            "--device": self.device,
            "--hardware-class": self.hardware_class,
        }
        options = [f"{name}={value}" for name, value in named.items() if value is not None]
        arguments = [str(self.benchmark_file), *options]
        arguments += [f"--set={setting}" for setting in self.settings]
        return python_module("worker.local", *arguments)


def read_settings(settings: Sequence[str]) -> dict[str, float]:
    """Return the settings by name. Raises CliError unless each is NAME=VALUE with a number."""
    found = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = None
        if number is None or not name:
            raise UsageError(
                f"--set {setting}: expected a name and a number, such as batch_size=64."
            )
        found[name] = int(number) if number.is_integer() else number
    return found


def require_seeds(first: int | None, runs: int, *, most: int) -> None:
    """Raise CliError if the last of the consecutive seeds is beyond `most`."""
    if first is not None and first + runs - 1 > most:
        limit = "32 bits, as torch and numpy use" if most < MAX_SEED else "63 bits, as a log holds"
        raise UsageError(
            f"--seed {first}: the seeds of {count_text(runs, 'run')} end at {first + runs - 1}; "
            f"expected at most {most} ({limit})."
        )


def require_training_packages(command: str) -> None:
    """Raise CliError with the install command if a package for training is missing."""
    require_server(command)
    for module, package in (("torch", "torch"), ("sklearn", "scikit-learn")):
        if importlib.util.find_spec(module) is None:
            raise CliError(
                f"{package} is not installed, so nothing can be trained here; in the folder of "
                "Finishline's source, install it with `pip install ./finishline '.[worker]'`.",
                exit_code=ExitCode.SERVER,
            )


def train_reference(training: Training) -> Iterator[dict[str, Any]]:
    """Yield a training's events until the caller stops. Raises CliError with its last line."""
    for event in child_events(training.command()):
        if "kind" in event and "run" in event:
            yield event
        elif event.get("kind") == "exit" and event["code"] != 0:
            code = event["code"]
            why = event["said"] or f"it ended with exit code {code}"
            raise CliError(why if code == REFUSED_CODE else f"The training failed: {why}")


def require_device(device: str | None) -> None:
    """Raise CliError unless torch can train on the device here. None is the first accelerator."""
    found = Devices(()) if device == "cpu" else find_devices()
    try:
        chosen = choose_device(device, found)
    except RuleError as error:
        raise CliError(f"--device {device}: {error.message}; expected {error.expected}.") from error
    if chosen == "cpu":
        return
    for trouble in without_platform():
        raise CliError(
            f"--device {chosen}: {trouble}, or train on the processor with --device cpu."
        )

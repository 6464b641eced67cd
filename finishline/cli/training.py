"""The reference training on this machine."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finishline.cli.errors import CliError, ExitCode, UsageError, require_server
from finishline.cli.processes import child_events, python_module
from finishline.devices import Devices, choose_device, find_devices, without_platform
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import MAX_SEED, check_precision, check_settings
from finishline.rules.text import count_text

REFUSED_CODE = 2  # The worker's local training wrote nothing.


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
    """The settings by name. Raises CliError unless each is NAME=VALUE with a number."""
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
        found[name] = number
    return found


def require_seeds(first: int | None, runs: int, *, most: int) -> None:
    """Raise CliError if the last of the seeds that count up from the first is beyond `most`."""
    if first is not None and first + runs - 1 > most:
        limit = "32 bits, as torch and numpy use" if most < MAX_SEED else "63 bits, as a log holds"
        raise UsageError(
            f"--seed {first}: the seeds of {count_text(runs, 'run')} end at {first + runs - 1}; "
            f"expected at most {most} ({limit})."
        )


def require_trainable(
    benchmark: Benchmark,
    settings: Mapping[str, float],
    *,
    division: str | None,
    precision: str | None = None,
) -> None:
    """Raise RuleError, before anything is trained, unless the reference takes the settings."""
    check_precision(benchmark, precision)
    check_settings(benchmark, division or benchmark.divisions[0], settings)


def require_training_packages(command: str) -> None:
    """Raise CliError with the install command if a package that a training needs is missing."""
    require_server(command)
    for module, package in (("torch", "torch"), ("sklearn", "scikit-learn")):
        if importlib.util.find_spec(module) is None:
            raise CliError(
                f"{package} is not installed, so nothing can be trained here; in the folder of "
                "Finishline's source, install it with `pip install ./finishline '.[worker]'`.",
                exit_code=ExitCode.SERVER,
            )


def train_reference(training: Training) -> Iterator[dict[str, Any]]:
    """The events of the training while it runs; its files are in `training.out` afterwards.

    Raises CliError with the last line the training wrote if it fails. The training ends when the
    caller stops asking for events.
    """
    for event in child_events(training.command()):
        if "kind" in event and "run" in event:
            yield event
        elif event.get("kind") == "exit" and event["code"] != 0:
            code = event["code"]
            why = event["said"] or f"it ended with exit code {code}"
            raise CliError(why if code == REFUSED_CODE else f"The training failed: {why}")


def require_device(device: str | None) -> None:
    """Raise CliError unless torch can train on the device here; None is the first accelerator."""
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

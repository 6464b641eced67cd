"""The reference training on this machine."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finishline.accelerators import Devices
from finishline.cli.client import ServerClient, View
from finishline.cli.errors import CliError, ExitCode, refusal, require_server
from finishline.cli.processes import child_events, python_module
from finishline.cli.replay_screen import Target
from finishline.device_health import without_platform
from finishline.devices import choose_device, find_devices
from finishline.machine import local_system
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.settings import check_precision, check_settings

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
        """The command line of the worker's local training."""
        arguments = [str(self.benchmark_file), "--runs", str(self.runs), "--out", str(self.out)]
        arguments += ["--data-dir", str(self.data)]
        for setting in self.settings:
            arguments += ["--set", setting]
        if self.seed is not None:
            arguments += ["--seed", str(self.seed)]
        if self.division is not None:
            arguments += ["--division", self.division]
        for name, value in (
            ("--precision", self.precision),
            ("--device", self.device),
            ("--hardware-class", self.hardware_class),
        ):
            if value is not None:
                arguments += [name, str(value)]
        return python_module("worker.local", *arguments)


def read_settings(settings: Sequence[str]) -> dict[str, float]:
    """The settings by name. Raises CliError unless each is NAME=VALUE with a number."""
    found = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise CliError(
                f"--set {setting}: expected a name and a number, such as batch_size=64.",
                exit_code=ExitCode.USAGE,
            ) from error
        if not name:
            raise CliError(
                f"--set {setting}: no name; expected a name and a number, such as batch_size=64.",
                exit_code=ExitCode.USAGE,
            )
    return found


def require_trainable(
    benchmark: Benchmark,
    settings: Mapping[str, float],
    *,
    division: str | None,
    precision: str | None = None,
) -> None:
    """Raise CliError, before anything is trained, unless the reference takes the settings."""
    try:
        check_precision(benchmark, precision)
        check_settings(benchmark, division or benchmark.divisions[0], settings)
    except RuleError as error:
        raise refusal(error) from error


def target_of(benchmark: Benchmark) -> Target:
    """The quality target of a benchmark as the screens show it."""
    target = benchmark.target
    return Target(
        metric=target.metric, value=target.value, unit=target.unit, direction=target.direction
    )


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
            raise CliError(
                why if code == REFUSED_CODE else f"The training failed: {why}",
                exit_code=ExitCode.REFUSED,
            )


def require_device(device: str | None) -> None:
    """Raise CliError unless torch can train on the device here; None is the first accelerator."""
    found = Devices(()) if device == "cpu" else find_devices()
    try:
        chosen = choose_device(device, found)
    except RuleError as error:
        raise CliError(
            f"--device {device}: {error.message}; expected {error.expected}.",
            exit_code=ExitCode.REFUSED,
        ) from error
    if chosen == "cpu":
        return
    for trouble in without_platform():
        raise CliError(
            f"--device {chosen}: {trouble}, or train on the processor with --device cpu.",
            exit_code=ExitCode.REFUSED,
        )


SYSTEM_FIELDS = ("accelerator", "accelerator_count", "processor", "processor_count")


def system_here(device: str | None) -> View:
    """Return the system of this machine with the device that trains. Raises CliError."""
    try:
        return local_system(choose_device(device))
    except RuleError as error:
        raise refusal(error) from error


def name_of_class(server: ServerClient, system: Mapping[str, Any]) -> str:
    """Return the server's name of this machine's hardware class, else the one made of its parts."""
    own = str(system["hardware_class"])
    try:
        listed = server.get("/hardware-classes")["hardware_classes"]
    except (CliError, KeyError, TypeError):
        return own
    wanted = [system[name] for name in SYSTEM_FIELDS]
    names = [str(each["name"]) for each in listed if [each.get(n) for n in SYSTEM_FIELDS] == wanted]
    return own if own in names or not names else names[0]

"""The reference training on this machine, as a submitter runs it: `python -m worker.local`."""

import importlib.util
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.cli.processes import end, python_module, spawn
from finishline.cli.replay import Target
from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark, load_benchmarks
from finishline.rules.errors import RuleError
from finishline.rules.submissions.settings import check_settings, reference_of
from finishline.rules.text import did_you_mean


@dataclass(frozen=True)
class Training:
    """What to train: the benchmark's file, how many runs, where to, and with which settings."""

    benchmark_file: Path
    out: Path
    runs: int
    settings: Sequence[str] = ()
    seed: int | None = None
    division: str | None = None
    device: str | None = None
    ticket: Path | None = None
    hardware_class: str | None = None

    def command(self) -> list[str]:
        """The command line of the worker's local training."""
        arguments = [str(self.benchmark_file), "--runs", str(self.runs), "--out", str(self.out)]
        for setting in self.settings:
            arguments += ["--set", setting]
        if self.seed is not None:
            arguments += ["--seed", str(self.seed)]
        if self.division is not None:
            arguments += ["--division", self.division]
        for name, value in (
            ("--device", self.device),
            ("--ticket", self.ticket),
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
            raise CliError(f"--set {setting}: name a setting.", exit_code=ExitCode.USAGE)
    return found


def require_trainable(
    benchmark: Benchmark, settings: Mapping[str, float], *, division: str | None
) -> None:
    """Raise CliError, before anything is trained, unless the reference takes the settings."""
    try:
        reference_of(benchmark)
        check_settings(benchmark, division or benchmark.divisions[0], settings)
    except RuleError as error:
        raise refusal(error) from error


def read_benchmarks(folder: Path) -> dict[str, Benchmark]:
    """Every benchmark defined in a folder, and those of published archives. Raises CliError."""
    try:
        return shipped_definitions() | load_benchmarks(folder)
    except RuleError as error:
        raise refusal(error) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {error.filename} ({error.strerror}); "
            "point --benchmarks-dir at the benchmark definitions.",
            exit_code=ExitCode.USAGE,
        ) from error


def find_benchmark(name: str, folder: Path) -> tuple[Path, Benchmark]:
    """A benchmark by its id in the folder, or by the path of its file. Raises CliError."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.is_file():
        known = sorted(item.stem for item in folder.glob("*.toml"))
        raise CliError(
            f"There is no benchmark {name!r} in {folder}{did_you_mean(name, known)}; "
            f"it holds {', '.join(known) or 'none'}. "
            f"A server's own is fetched with `finishline benchmark fetch {name}`.",
            exit_code=ExitCode.NOT_FOUND,
        )
    try:
        return path, load_benchmark(path)
    except RuleError as error:
        raise refusal(error) from error


def target_of(benchmark: Benchmark) -> Target:
    """The quality target of a benchmark as the screens show it."""
    target = benchmark.target
    return Target(
        metric=target.metric, value=target.value, unit=target.unit, direction=target.direction
    )


def require_training_packages() -> None:
    """Raise CliError with the command that installs what training needs, if it is missing."""
    for module, package in (("torch", "torch"), ("sklearn", "scikit-learn")):
        if importlib.util.find_spec(module) is None:
            raise CliError(
                f"{package} is not installed, so nothing can be trained here; install it with "
                "`pip install -c constraints.txt -e '.[worker]'`.",
                exit_code=ExitCode.SERVER,
            )


def train_reference(training: Training) -> Iterator[dict[str, Any]]:
    """The events of the training while it runs; its files are in `training.out` afterwards.

    Raises CliError with the last line the training wrote if it fails. The training ends when the
    caller stops asking for events.
    """
    with tempfile.TemporaryFile() as errors:
        child = spawn(training.command(), stdout=PIPE, stderr=errors)
        try:
            assert child.stdout is not None  # noqa: S101  (it was asked for just above)
            yield from _events(child.stdout)
            code = child.wait()
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        if code != 0:
            errors.seek(0)
            raise _failed(code, errors.read().decode("utf-8", errors="replace"))


def _events(lines: Iterator[bytes] | Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # A library's own print is no event.
        if isinstance(event, dict) and "kind" in event and "run" in event:
            yield event


def _failed(code: int, errors: str) -> CliError:
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    last = said[-1].removeprefix("error: ") if said else f"it ended with exit code {code}"
    return CliError(f"The training failed: {last}", exit_code=ExitCode.REFUSED)

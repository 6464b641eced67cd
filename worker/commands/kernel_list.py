"""A list of kernels, checked before torch is loaded, and their figures shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import python_module
from finishline.cli.tables import ABSENT, make_table
from finishline.devices import choose_device
from finishline.rules.errors import RuleError
from worker.kernel_rules import ON_PROCESSORS, read_kernels

GIGA = 1e9


@dataclass(frozen=True)
class KernelOptions:
    """Options of the measurement of a list of kernels."""

    file: Path
    device: str
    threads: int
    seconds: float

    def command(self) -> list[str]:
        """The command line of the worker's measurement."""
        options = {"--device": self.device, "--threads": self.threads, "--seconds": self.seconds}
        given = [f"{name}={value}" for name, value in options.items()]
        return python_module("worker.kernel_bench", *given, "--", str(self.file))


def check_kernels(file: Path, device: str | None, threads: int, seconds: float) -> KernelOptions:
    """The options, if the list and the device are good. Raises CliError."""
    try:
        chosen = choose_device(device)
        kernels = read_kernels(file.read_bytes(), file=file.name)
        for kernel in kernels:
            if chosen == "cpu" and kernel.precision not in ON_PROCESSORS:
                raise RuleError(
                    f"a processor has no arithmetic in {kernel.precision}",
                    file=file.name,
                    field="precisions",
                    expected=" or ".join(ON_PROCESSORS),
                )
    except RuleError as error:
        raise CliError(f"{error}.", exit_code=ExitCode.REFUSED) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {file} ({error.strerror}); name a TOML file of kernels.",
            exit_code=ExitCode.USAGE,
        ) from error
    return KernelOptions(file, chosen, threads, seconds)


def kernel_table(result: Mapping[str, Any]) -> Table:
    """One line for each kernel."""
    names = ("p50", "mean", "n", "GFLOP/s", "GB/s")
    table = make_table("kernel", "pass", "precision", "shape", *names, right=names)
    for row in result["kernels"]:
        seconds = row["seconds"]
        table.add_row(
            row["kind"],
            row["pass"],
            row["precision"],
            shape_words(row["shape"]),
            f"{seconds['p50']:.4g} s",
            f"{seconds['mean']:.4g} s",
            str(seconds["n"]),
            _giga(row["flops_per_second"]),
            _giga(row["bytes_per_second"]),
        )
    return table


def kernel_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The reason for each figure that some kernel lacks."""
    for name, why in result["absent"].items():
        yield f"{name}: absent in some rows, {why}"


def shape_words(shape: Mapping[str, int | bool]) -> str:
    """The numbers of a shape with their names; causal is said where it is so."""
    words = [f"{name} {value}" for name, value in shape.items() if not isinstance(value, bool)]
    return ", ".join([*words, *(name for name, value in shape.items() if value is True)])


def _giga(rate: float | None) -> str:
    return ABSENT if rate is None else f"{rate / GIGA:.4g}"

"""The harness of the programs here: turns, percentiles, and one table of figures with their bars.

A program is a function `measure(bars, *, option=default)` that ends its file with `run(measure)`.
`python -m perf.harness PROGRAM...` runs several, each in its own process, and prints one
table. The table goes to standard output, and words about the figures to standard error.
"""

import argparse
import inspect
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
DIGITS = CHECKOUT / "benchmarks" / "digits.toml"
HEADER = "| program | what | measured | bar | met |\n|---|---|---|---|---|"


@dataclass
class Bars:
    """Prints the figures of a program and remembers which missed their bar."""

    program: str
    missed: list[str] = field(default_factory=list)

    def say(self, words: str) -> None:
        """Print a line to standard error."""
        print(f"{self.program}: {words}", file=sys.stderr, flush=True)

    def hold(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Print a row: what, measured, bar, met."""
        bars = [f"at most {at_most:g}"] if at_most is not None else []
        bars += [f"at least {at_least:g}"] if at_least is not None else []
        met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        verdict = ("yes" if met else "MISSED") if bars else ""
        self._print(name, f"{value:.4g}{unit}", " and ".join(bars), verdict)
        if not met:
            self.missed.append(name)

    def not_measured(self, why: str) -> None:
        """Print a row with the reason for a missing figure."""
        self._print("not measured", why, "", "")

    def _print(self, *cells: str) -> None:
        print(f"| {' | '.join((self.program, *cells))} |", flush=True)


def run(measure: Callable[..., None], arguments: Sequence[str] | None = None) -> None:
    """Run a program with the options of its command line. Exits with 1 where a bar is missed."""
    name = Path(inspect.getfile(measure)).stem
    words = inspect.getdoc(inspect.getmodule(measure))
    parser = argparse.ArgumentParser(prog=f"python -m perf.{name}", description=words)
    for option in list(inspect.signature(measure).parameters.values())[1:]:
        kind: dict[str, Any] = {"type": type(option.default), "default": option.default}
        if isinstance(option.default, bool):
            kind = {"action": "store_true"}
        parser.add_argument(f"--{option.name.replace('_', '-')}", **kind)
    options = vars(parser.parse_args(arguments))
    print(HEADER, flush=True)
    bars = Bars(name)
    measure(bars, **options)
    sys.exit(1 if bars.missed else 0)


def bench(programs: Sequence[str]) -> None:
    """Print one table of several programs. Exits with 1 where one missed a bar or failed."""
    print(HEADER, flush=True)
    failed = []
    for program in programs:
        command = [sys.executable, "-m", f"perf.{program}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.rstrip() not in HEADER.splitlines():
                    print(line, end="", flush=True)
        if child.returncode:
            failed.append(program)
    if failed:
        sys.exit(f"Below its bar, or not measured: {', '.join(failed)}")


def in_turn(
    cases: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = False
) -> dict[str, list[float]]:
    """Measure the cases in turn, which spreads other work. `warm` drops one round more."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + warm):
        for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
            value = cases[name]()
            if number >= warm:
                found[name].append(value)
    return found


def median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    if len(values) < 2:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


if __name__ == "__main__":
    bench(sys.argv[1:])

"""The harness of the programs here: turns, percentiles, tables, and bars."""

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
DIGITS = CHECKOUT / "benchmarks" / "digits.toml"


@dataclass
class Bars:
    """Prints the figures of a program and remembers which missed their bar."""

    program: str
    missed: list[str] = field(default_factory=list)

    def say(self, words: str) -> None:
        """Print a line."""
        print(f"{self.program}: {words}", flush=True)

    def hold(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> bool:
        """Print a row of figure, value, bar and verdict; whether the value meets its bar."""
        bars = [f"at most {at_most:g}"] if at_most is not None else []
        bars += [f"at least {at_least:g}"] if at_least is not None else []
        met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        verdict = ("yes" if met else "MISSED") if bars else ""
        cells = (self.program, name, f"{value:.4g}{unit}", " and ".join(bars), verdict)
        print(f"| {' | '.join(cells)} |", flush=True)
        if not met:
            self.missed.append(name)
        return met

    @property
    def exit_code(self) -> int:
        """1 if a bar was missed."""
        return int(bool(self.missed))


class ProcessorSamples:
    """Processor seconds of the processes that start below this one, twenty times a second.

    Use it as a context. A process that ends keeps its last reading.
    """

    PERIOD_SECONDS = 0.05

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._before = {each.pid for each in psutil.Process().children(recursive=True)}
        self._used: dict[int, float] = {}
        self._samples = [(self.began, 0.0)]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="processor", daemon=True)

    def __enter__(self) -> "ProcessorSamples":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def between(self, start: float, end: float) -> float:
        """Processor seconds between two readings of `time.perf_counter`."""
        moments, seconds = np.array(self._samples).T
        first, last = np.interp([start, end], moments, seconds)
        return float(last - first)

    def _run(self) -> None:
        while not self._stopped.wait(self.PERIOD_SECONDS):
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if each.pid not in self._before:
                        times = each.cpu_times()
                        self._used[each.pid] = times.user + times.system
            self._samples.append((time.perf_counter(), sum(self._used.values())))


def in_turn(
    cases: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = False
) -> dict[str, list[float]]:
    """Measure each case once a round, every other round backwards; `warm` drops one round more.

    The machine's other work then weighs on all of them alike.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + warm):
        for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
            value = cases[name]()
            if number >= warm:
                found[name].append(value)
    return found


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    if len(values) < 2:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def processor_seconds_of(work: Callable[[], object]) -> float:
    """Processor seconds that a piece of work takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began

"""An accelerator's own events against the host's clock, its energy counter against its power.

`python -m perf.device_clock [--device cuda:0] [--seconds 20]` multiplies matrices on the device. A
burst is timed by CUDA events and by the host's monotonic clock with a synchronisation at each end:
the stopwatch of a replay reads the latter. Over all bursts NVML's energy counter is compared with
the integral of its power, read every 20 ms. Exits with 1 where a bar is missed, 2 without a device.
"""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch

from finishline.periodic import PeriodicThread
from perf.harness import Bars
from worker.sensors import open_sensors

MATRIX, PRODUCTS = 4096, 20
POWER_PERIOD_SECONDS = 0.02


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    bars = Bars("device_clock")
    if not torch.cuda.is_available():
        print("device_clock: torch finds no CUDA device; nothing is measured.", file=sys.stderr)
        return 2
    device = torch.device(asked.device)
    with PowerIntegral(asked.device) as power:
        pairs = bursts(device, asked.seconds)
    differences = [abs(host - events) / events for host, events in pairs]
    bars.say(f"{torch.cuda.get_device_name(device)}; {len(pairs)} bursts of {PRODUCTS} products")
    bars.hold("host's clock off the events, median", statistics.median(differences), at_most=0.01)
    energy = power.joules()
    if energy is None:
        bars.say("no energy: NVML's Python package or a sensor is absent")
    else:
        counted, integral = energy
        bars.say(f"{counted:.0f} J counted, {integral:.0f} J integrated")
        bars.hold("counter off the integral of power", abs(counted / integral - 1), at_most=0.05)
    return bars.exit_code


def bursts(device: torch.device, seconds: float) -> list[tuple[float, float]]:
    """Seconds of each burst by the host's clock and by the device's events, after a warm-up."""
    x = torch.randn(MATRIX, MATRIX, device=device)
    pairs: list[tuple[float, float]] = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at or len(pairs) < 2:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        start.record()
        for _ in range(PRODUCTS):
            torch.mm(x, x)
        end.record()
        torch.cuda.synchronize(device)
        pairs.append((time.perf_counter() - began, start.elapsed_time(end) / 1000))
    return pairs[1:]


class PowerIntegral:
    """The energy counter of a device, and the integral of its power, while the context lasts."""

    def __init__(self, device: str) -> None:
        self._sensors = open_sensors(device)
        self._samples: list[tuple[float, float]] = []
        self._counts: list[float | None] = []
        self._thread = PeriodicThread("power", POWER_PERIOD_SECONDS, self._read)

    def __enter__(self) -> "PowerIntegral":
        self._count()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        self._count()

    def joules(self) -> tuple[float, float] | None:
        """Joules of the counter and of the integral; None where either sensor is absent."""
        first, last = self._counts
        if first is None or last is None or len(self._samples) < 2:
            return None
        integral = sum(
            (later - at) * (watts + after) / 2
            for (at, watts), (later, after) in pairwise(self._samples)
        )
        return last - first, integral

    def _count(self) -> None:
        self._counts.append(None if self._sensors is None else self._sensors.energy_joules())

    def _read(self) -> None:
        watts = None if self._sensors is None else self._sensors.read().watts
        if watts is not None:
            self._samples.append((time.perf_counter(), watts))


if __name__ == "__main__":
    raise SystemExit(main())

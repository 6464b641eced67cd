"""An accelerator's own events against the host's clock, its energy counter against its power.

The device multiplies matrices. A
burst is timed by CUDA events and by the host's clock with a synchronisation at each end, as the
stopwatch of a replay reads it. Over all bursts NVML's energy counter is compared with the integral
of its power, read every 20 ms.
"""

import statistics
import time

import numpy as np
import torch

from finishline.periodic import PeriodicThread
from perf.harness import Bars, run
from worker.machine.sensors import open_sensors

MATRIX, PRODUCTS = 4096, 20
POWER_PERIOD_SECONDS = 0.02


def measure(bars: Bars, *, device: str = "cuda:0", seconds: float = 20.0) -> None:
    """Compare the two clocks, and the counter with the power."""
    if not torch.cuda.is_available():
        bars.not_measured("torch finds no CUDA device")
        return
    sensors = open_sensors(device)
    samples: list[tuple[float, float]] = []

    def read_power() -> None:
        watts = None if sensors is None else sensors.read().watts
        if watts is not None:
            samples.append((time.perf_counter(), watts))

    before = None if sensors is None else sensors.energy_joules()
    thread = PeriodicThread("power", POWER_PERIOD_SECONDS, read_power)
    thread.start()
    pairs = bursts(torch.device(device), seconds)
    thread.stop()
    after = None if sensors is None else sensors.energy_joules()
    off = statistics.median(abs(host - events) / events for host, events in pairs)
    bars.say(f"{torch.cuda.get_device_name(device)}; {len(pairs)} bursts of {PRODUCTS} products")
    bars.hold("host's clock off the events, median", off, at_most=0.01)
    if before is None or after is None or len(samples) < 2:
        bars.say("no energy: NVML's Python package or a sensor is absent")
    else:
        at, watts = np.array(samples).T
        integral = float(np.trapezoid(watts, at))
        bars.say(f"{after - before:.0f} J counted, {integral:.0f} J integrated")
        differ = abs((after - before) / integral - 1)
        bars.hold("counter off the integral of power", differ, at_most=0.05)


def bursts(device: torch.device, seconds: float) -> list[tuple[float, float]]:
    """Time bursts by the host's clock and by the device's events, after a warm-up."""
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


if __name__ == "__main__":
    run(measure)

"""Energy and clocks of this machine, and of a run on it.

NVIDIA's library and powercap of Linux are the sensors. During a run a thread asks them twice a
second, and the ledger's edges read the counter.
"""

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from finishline.devices import accelerators_of, find_devices
from finishline.periodic import PeriodicThread
from finishline.rules.measurements import RunTelemetry
from finishline.rules.run import Clock, Ledger, Phase

EVERY_SECONDS = 0.5
POWERCAP = Path("/sys/class/powercap")
MILLI, MICRO = 1e-3, 1e-6


@dataclass(frozen=True)
class Reading:
    """Sensor readings at one moment. Missing ones are None."""

    watts: float | None = None
    clock_mhz: float | None = None
    celsius: float | None = None
    utilisation_percent: float | None = None


class Powercap:
    """The energy of all processor packages together, across the wrap-around of each counter."""

    source = "powercap"

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._wraps_at = [_number(package / "max_energy_range_uj") for package in packages]
        self._last: list[float] | None = None
        self._total = 0.0

    def energy_joules(self) -> float | None:
        """Return joules since the first call. None after a counter fails or jumps back."""
        counts = [_number(package / "energy_uj") for package in self._packages]
        present = [count for count in counts if count is not None]
        if len(present) < len(counts):
            return None
        last, self._last = self._last or present, present
        try:
            self._total += sum(
                counted_since(before, now, wraps_at=limit)
                for before, now, limit in zip(last, present, self._wraps_at, strict=True)
            )
        except ValueError:
            return None
        return self._total * MICRO

    def read(self) -> Reading:
        """Read the counter, the packages' only sensor."""
        return Reading()


def counted_since(earlier: float, later: float, *, wraps_at: float | None) -> float:
    """Subtract two readings of a counter that starts at 0 again at `wraps_at`.

    It assumes at most one turn, so read it often. Raises ValueError if a counter without `wraps_at`
    went back.
    """
    if later >= earlier:
        return later - earlier
    if wraps_at is None or earlier > wraps_at:
        raise ValueError(f"an energy counter went back from {earlier:g} to {later:g}")
    return wraps_at - earlier + later


def open_powercap(folder: Path = POWERCAP) -> Powercap | None:
    """Open the packages of this host (`intel-rapl:N`, on AMD as well). None if unreadable."""
    packages = [
        path
        for path in sorted(folder.glob("intel-rapl:*"))
        if path.name.count(":") == 1 and _number(path / "energy_uj") is not None
    ]
    return Powercap(packages) if packages else None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


class Nvml:
    """Several accelerators as one: energy and power summed, highest temperature, else means."""

    source = "nvml"

    def __init__(self, library: Any, handles: list[Any]) -> None:
        self._library = library
        self._handles = handles

    def energy_joules(self) -> float | None:
        """Return the counters of all accelerators since their driver was loaded."""
        return self._of_all(self._library.nvmlDeviceGetTotalEnergyConsumption, sum, unit=MILLI)

    def read(self) -> Reading:
        """Every other sensor at this moment."""
        library = self._library
        clock, temperature = library.NVML_CLOCK_SM, library.NVML_TEMPERATURE_GPU
        return Reading(
            watts=self._of_all(library.nvmlDeviceGetPowerUsage, sum, unit=MILLI),
            clock_mhz=self._of_all(lambda h: library.nvmlDeviceGetClockInfo(h, clock), fmean),
            celsius=self._of_all(lambda h: library.nvmlDeviceGetTemperature(h, temperature), max),
            utilisation_percent=self._of_all(
                lambda h: library.nvmlDeviceGetUtilizationRates(h).gpu, fmean
            ),
        )

    def _of_all(
        self, read: Callable[[Any], float], merge: Callable[[list[float]], float], unit: float = 1.0
    ) -> float | None:
        try:
            return merge([float(read(handle)) for handle in self._handles]) * unit
        except self._library.NVMLError:
            return None


def open_nvml(uuids: Sequence[str], *, library: Any | None = None) -> Nvml | None:
    """Open the accelerators of these UUIDs. None without library, driver or accelerator."""
    try:
        library = library or importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
    except library.NVMLError:
        return None
    return Nvml(library, handles) if handles else None


Sensors = Nvml | Powercap


def open_sensors(device: str) -> Sensors | None:
    """Open the sensors of the accelerators or processor packages that train, None if unreadable."""
    if device.startswith("cuda"):
        found = accelerators_of(device, find_devices().accelerators)
        return open_nvml([each.uuid for each in found])
    return open_powercap()


def timed_joules(joules_by_phase: Mapping[str, float], clock: Clock) -> float:
    """Return joules on a benchmark's clock. Excess preparation counts only in seconds."""
    known = {item.name for item in fields(Ledger)}
    joules = {phase: value for phase, value in joules_by_phase.items() if phase in known}
    if clock.name != "dawnbench":
        joules |= {"init": 0.0, "compile": 0.0, "warmup": 0.0}
    return clock.seconds(Ledger(**joules), division="open")


def samples_per_joule(samples: int, joules: float | None) -> float | None:
    """Return samples trained on for each joule, if energy was measured."""
    return None if joules is None or joules <= 0 else samples / joules


class Telemetry:
    """Follows one run: call `enter` at each phase, `stop` at its end, then `summary`.

    Without sensors it only has the memory that the training reports. The thread also reads the
    counter, so that it sees each turn.
    """

    def __init__(self, sensors: Sensors | None, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._sensors = sensors
        self._lock = threading.Lock()
        self._phase = Phase.INIT
        self._joules: dict[str, float] | None = None if sensors is None else {}
        self._counter = None if sensors is None else sensors.energy_joules()
        self._readings: list[Reading] = []
        self._memory: dict[str, int] = {}
        self._communication: tuple[float | None, str | None] = (None, None)
        self._started = False
        self._thread = PeriodicThread("telemetry", every_seconds, self._look)
        if sensors is not None:
            self._thread.start()

    def enter(self, phase: Phase, *, on_clock: bool) -> None:
        """Enter `phase`: later energy belongs to it. Readings count once the clock runs."""
        with self._lock:
            self._count()
            self._phase = phase
            self._started = self._started or on_clock

    def note_memory(self, *, resident: int | None, accelerator: int | None) -> None:
        """Keep the peaks that the training process reports, in bytes."""
        for name, peak in (("resident", resident), ("accelerator", accelerator)):
            if peak is not None:
                self._memory[name] = max(self._memory.get(name, 0), peak)

    def note_communication(
        self, seconds: float | None, *, train_seconds: float, how: str | None
    ) -> None:
        """Note the training process's seconds of gradient exchange within its train seconds."""
        if seconds is not None and train_seconds > 0:
            self._communication = (min(1.0, seconds / train_seconds), how)

    def stop(self) -> None:
        """End the thread and count the remainder. Harmless if it was called before."""
        if self._thread.is_stopping:
            return
        self._thread.stop()
        with self._lock:
            self._count()

    def summary(self, clock: Clock, *, samples: int) -> RunTelemetry:
        """Summarise the readings, with the energy of the phases on a benchmark's clock."""
        joules = timed_joules(self._joules, clock) if self._joules else None

        def merged(name: str, merge: Callable[[list[float]], float]) -> float | None:
            values = [getattr(reading, name) for reading in self._readings]
            present = [value for value in values if value is not None]
            return merge(present) if present else None

        return RunTelemetry(
            readings=len(self._readings),
            energy_joules=joules,
            energy_source=self._sensors.source if self._sensors and joules is not None else None,
            samples_per_joule=samples_per_joule(samples, joules) if samples else None,
            power_mean_watts=merged("watts", fmean),
            power_max_watts=merged("watts", max),
            clock_mean_mhz=merged("clock_mhz", fmean),
            temperature_max_celsius=merged("celsius", max),
            utilisation_mean_percent=merged("utilisation_percent", fmean),
            memory_peak_bytes=self._memory.get("resident"),
            accelerator_memory_peak_bytes=self._memory.get("accelerator"),
            communication_share=self._communication[0],
            communication_how=self._communication[1],
        )

    def _look(self) -> None:
        with self._lock:
            self._count()
            if self._started and self._sensors is not None:
                self._readings.append(self._sensors.read())

    def _count(self) -> None:
        """Add the energy since the last reading. One missed reading ends the counting."""
        if self._joules is None or self._sensors is None:
            return
        now = self._sensors.energy_joules()
        if now is None or self._counter is None or now < self._counter:
            self._joules = None
            return
        name = self._phase.value
        self._joules[name] = self._joules.get(name, 0.0) + now - self._counter
        self._counter = now

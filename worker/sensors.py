"""Energy and clocks of this machine: NVIDIA's library, and powercap of Linux."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from finishline.devices import accelerators_of, find_devices
from finishline.rules.verification.utilisation import counted_since
from worker.telemetry import Reading, Sensors

POWERCAP = Path("/sys/class/powercap")
MICRO = 1e-6


class Powercap:
    """The energy of all processor packages together, across the wrap-around of each counter."""

    source = "powercap"

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._wraps_at = [_number(package / "max_energy_range_uj") for package in packages]
        self._last: list[float] | None = None
        self._total = 0.0

    def energy_joules(self) -> float | None:
        """Joules since the first call; None once a counter cannot be read or jumps back."""
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
        """The packages have no other sensor."""
        return Reading()


def open_powercap(folder: Path = POWERCAP) -> Powercap | None:
    """The packages of this host (`intel-rapl:N`, on AMD as well); None where none is readable."""
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


MILLI = 1e-3


class Nvml:
    """The sensors of one or several accelerators, as one: energy and power are sums, clock and
    utilisation means, temperature the highest. A sensor that one of them lacks is absent.
    """

    source = "nvml"

    def __init__(self, library: Any, handles: list[Any]) -> None:
        self._library = library
        self._handles = handles

    def energy_joules(self) -> float | None:
        """The counters of all accelerators since their driver was loaded."""
        read = self._library.nvmlDeviceGetTotalEnergyConsumption
        return _scaled(self._each(read), MILLI, sum)

    def read(self) -> Reading:
        """Every other sensor at this moment."""
        library = self._library
        return Reading(
            watts=_scaled(self._each(library.nvmlDeviceGetPowerUsage), MILLI, sum),
            clock_mhz=_scaled(
                self._each(lambda h: library.nvmlDeviceGetClockInfo(h, library.NVML_CLOCK_SM)),
                1.0,
                _mean,
            ),
            celsius=_scaled(
                self._each(
                    lambda h: library.nvmlDeviceGetTemperature(h, library.NVML_TEMPERATURE_GPU)
                ),
                1.0,
                max,
            ),
            utilisation_percent=_scaled(
                self._each(lambda h: library.nvmlDeviceGetUtilizationRates(h).gpu), 1.0, _mean
            ),
        )

    def _each(self, read: Callable[[Any], float]) -> list[float] | None:
        try:
            return [float(read(handle)) for handle in self._handles]
        except self._library.NVMLError:
            return None


def open_nvml(uuids: Sequence[str], *, library: Any | None = None) -> Nvml | None:
    """The accelerators of these UUIDs; None without library, driver or accelerator."""
    library = library or _library()
    if library is None:
        return None
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
    except library.NVMLError:
        return None
    return Nvml(library, handles) if handles else None


def _library() -> Any | None:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _scaled(
    values: list[float] | None, unit: float, merge: Callable[[Iterable[float]], float]
) -> float | None:
    return merge(values) * unit if values else None


def _mean(values: Iterable[float]) -> float:
    each = list(values)
    return sum(each) / len(each)


def open_sensors(device: str) -> Sensors | None:
    """The accelerators' for a training there, the processor packages' for one on a processor.

    None where there is nothing that can be read.
    """
    if device.startswith("cuda"):
        found = accelerators_of(device, find_devices().accelerators)
        return open_nvml([each.uuid for each in found])
    return open_powercap()

"""Energy and clocks of this machine: the libraries of NVIDIA and AMD, and powercap of Linux."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from finishline.amd import handles_of, number, open_library, read
from finishline.devices import accelerators_of, find_devices
from finishline.rules.scoring.utilisation import counted_since
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


class Amdsmi:
    """AMD's accelerators, as one; see Nvml."""

    source = "amdsmi"

    def __init__(self, library: Any, handles: Sequence[Any]) -> None:
        self._library = library
        self._handles = handles

    def energy_joules(self) -> float | None:
        """The counters of all accelerators; each counts in microjoules times its resolution."""
        counts = self._answers("amdsmi_get_energy_count")
        return _scaled(_all([_microjoules(count) for count in counts]), MICRO, sum)

    def read(self) -> Reading:
        """Every other sensor at this moment."""
        library = self._library
        watts = ("current_socket_power", "average_socket_power")
        clock = self._numbers("amdsmi_get_clock_info", ("clk",), library.AmdSmiClkType.GFX)
        activity = self._numbers("amdsmi_get_gpu_activity", ("gfx_activity",))
        celsius = self._answers(
            "amdsmi_get_temp_metric",
            library.AmdSmiTemperatureType.JUNCTION,
            library.AmdSmiTemperatureMetric.CURRENT,
        )
        return Reading(
            watts=_scaled(self._numbers("amdsmi_get_power_info", watts), 1.0, sum),
            clock_mhz=_scaled(clock, 1.0, _mean),
            celsius=_scaled(_all(celsius), 1.0, max),
            utilisation_percent=_scaled(activity, 1.0, _mean),
        )

    def _answers(self, name: str, *arguments: Any) -> list[Any]:
        return [read(self._library, name, handle, *arguments) for handle in self._handles]

    def _numbers(self, name: str, fields: Sequence[str], *arguments: Any) -> list[float] | None:
        return _all([number(each, *fields) for each in self._answers(name, *arguments)])


def open_amdsmi(uuids: Sequence[str]) -> Amdsmi | None:
    """The accelerators of these UUIDs; None without library, driver or one of them."""
    try:
        library = open_library()
    except RuntimeError:
        return None
    handles = [] if library is None else handles_of(library, uuids)
    return Amdsmi(library, handles) if handles and len(handles) == len(uuids) else None


def _microjoules(count: Any) -> float | None:
    steps, resolution = number(count, "energy_accumulator"), number(count, "counter_resolution")
    return None if steps is None or not resolution else steps * resolution


def _all(values: Sequence[float | None]) -> list[float] | None:
    """The values, None if one is absent: a part of a sum is no sum."""
    present = [value for value in values if value is not None]
    return present if len(present) == len(values) else None


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
        uuids = [each.uuid for each in found]
        return open_amdsmi(uuids) if found and found[0].vendor == "amd" else open_nvml(uuids)
    return open_powercap()

"""The energy counters of the processor packages, as far as the kernel lets them be read."""

from pathlib import Path

from finishline.rules.scoring.energy import counted_since
from worker.telemetry import Reading

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

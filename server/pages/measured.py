"""Energy, power, memory and precision of a replay, over its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.scoring.aggregate import mean

Table = Mapping[str, Any]


def measured_beside(report: Table | None) -> dict[str, Any] | None:
    """Precision, energy, power and memory of a report; None where nothing of it was measured.

    Energy, power and samples per joule are means over the runs that have them, memory the most.
    """
    if report is None:
        return None
    runs = [run["telemetry"] for run in report["runs"] if run.get("telemetry")]
    audit = report.get("precision")
    figures = {
        "energy_joules": _mean(runs, "energy_joules"),
        "samples_per_joule": _mean(runs, "samples_per_joule"),
        "power_mean_watts": _mean(runs, "power_mean_watts"),
        "memory_peak_bytes": _most(runs, "memory_peak_bytes"),
        "accelerator_memory_peak_bytes": _most(runs, "accelerator_memory_peak_bytes"),
        "precision": audit["lowest"] if audit else None,
        "precision_scope": audit.get("scope") if audit else None,
    }
    if all(value is None for value in figures.values()):
        return None
    sources = sorted({run["energy_source"] for run in runs if run.get("energy_source")})
    system = report["system"]
    return figures | {
        "energy_sources": sources,
        "runs": len(runs),
        "hardware_class": system.get("hardware_class"),
        "worker": system.get("worker"),
    }


def _values(runs: Sequence[Table], name: str) -> list[float]:
    return [run[name] for run in runs if run.get(name) is not None]


def _mean(runs: Sequence[Table], name: str) -> float | None:
    values = _values(runs, name)
    return mean(values) if values else None


def _most(runs: Sequence[Table], name: str) -> float | None:
    return max(_values(runs, name), default=None)

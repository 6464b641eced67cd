"""What was measured beside a replay's runs: one column for each thing that any of them tells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.formats import percent, significant

View = Mapping[str, Any]
MIB = 2**20
_KEPT_TOGETHER = "\u00a0"


@dataclass(frozen=True)
class Column:
    """A heading and the text of each run, in the order of the runs."""

    heading: str
    texts: Sequence[str]


def _unit(unit: str, *, scale: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{significant(value / scale, 4)}{_KEPT_TOGETHER}{unit}"


def _percent(value: float) -> str:
    return percent(100 * value)


# Heading, which view of the run has it, the field, and how it reads.
COLUMNS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    (
        "Samples per second",
        "utilisation",
        "samples_per_second",
        lambda value: significant(value, 4),
    ),
    ("Energy, timed", "telemetry", "energy_joules", _unit("J")),
    ("Samples per joule", "telemetry", "samples_per_joule", lambda value: significant(value, 4)),
    ("Power, mean", "telemetry", "power_mean_watts", _unit("W")),
    ("Memory, peak", "telemetry", "memory_peak_bytes", _unit("MiB", scale=MIB)),
    (
        "Accelerator memory, peak",
        "telemetry",
        "accelerator_memory_peak_bytes",
        _unit("MiB", scale=MIB),
    ),
    ("In communication", "telemetry", "communication_share", _percent),
    ("Model FLOP/s", "utilisation", "achieved_flops", _unit("GFLOP/s", scale=1e9)),
    ("MFU", "utilisation", "utilisation", _percent),
)


def measured_columns(verification: View) -> list[Column]:
    """The columns that at least one run fills, of a verification with its report."""
    runs = _runs(verification)
    columns = []
    for heading, part, name, text in COLUMNS:
        values = [run[part].get(name) for run in runs]
        if any(value is not None for value in values):
            columns.append(Column(heading, ["–" if v is None else text(v) for v in values]))
    return columns


def why_no_utilisation(verification: View) -> str | None:
    """The reason that every run gives for telling no utilisation; None if one tells it."""
    found = verification.get("utilisation") or []
    if any(run["utilisation"] is not None for run in found):
        return None
    reasons = [run["missing"] for run in found if run["missing"]]
    return reasons[0] if reasons else None


def _runs(verification: View) -> list[dict[str, View]]:
    report = verification["report"] or {"runs": []}
    by_run = {one["run"]: one for one in verification.get("utilisation") or []}
    return [
        {
            "telemetry": run.get("telemetry") or {},
            "utilisation": by_run.get(run["index"]) or {},
        }
        for run in report["runs"]
    ]

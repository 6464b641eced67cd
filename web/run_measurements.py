"""Measurements of a run: columns, phases, settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from finishline.rules.run import Phase
from finishline.rules.text import significant
from web.formats import DASH, GAP, number, percent

View = Mapping[str, Any]


def _in(unit: str, *, scale: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{significant(value / scale, 4)}{GAP}{unit}"


def _plain(value: float) -> str:
    return significant(value, 4)


def _share(value: float) -> str:
    return percent(100 * value)


MIB = _in("MiB", scale=2**20)
# Heading, which view of the run has it, the field, and how it reads.
COLUMNS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("Samples per second", "utilisation", "samples_per_second", _plain),
    ("Energy, timed", "telemetry", "energy_joules", _in("J")),
    ("Samples per joule", "telemetry", "samples_per_joule", _plain),
    ("Power, mean", "telemetry", "power_mean_watts", _in("W")),
    ("Memory, peak", "telemetry", "memory_peak_bytes", MIB),
    ("Accelerator memory, peak", "telemetry", "accelerator_memory_peak_bytes", MIB),
    ("In communication", "telemetry", "communication_share", _share),
    ("Model FLOP/s", "utilisation", "achieved_flops", _in("GFLOP/s", scale=1e9)),
    ("MFU", "utilisation", "utilisation", _share),
)


def measured_columns(verification: View) -> dict[str, list[str]]:
    """The text of each run by heading, for the columns that at least one run fills."""
    used = {one["run"]: one for one in verification["utilisation"]}
    runs = [
        {"telemetry": run.get("telemetry") or {}, "utilisation": used.get(run["index"]) or {}}
        for run in (verification["report"] or {"runs": []})["runs"]
    ]
    columns = {}
    for heading, part, name, text in COLUMNS:
        values = [run[part].get(name) for run in runs]
        if any(value is not None for value in values):
            columns[heading] = [DASH if v is None else text(v) for v in values]
    return columns


def why_no_utilisation(verification: View) -> str | None:
    """The reason that every run gives for telling no utilisation. None if one tells it."""
    found = verification["utilisation"]
    if any(run["utilisation"] is not None for run in found):
        return None
    reasons = [run["missing"] for run in found if run["missing"]]
    return reasons[0] if reasons else None


def phases_used(runs: Sequence[View]) -> list[str]:
    """The phases that any run spent time in, in their order."""
    return [phase for phase in Phase if any((run["ledger"] or {}).get(phase) for run in runs)]


class Setting(NamedTuple):
    """A setting with its text, which has several values where the runs differ."""

    name: str
    text: str
    by_logs: bool


def stated_settings(submission: View) -> list[Setting]:
    """Every setting of a submission, each once. The claim's own word comes first."""
    claimed = submission["hyperparameters"]
    logged: dict[str, dict[str, None]] = {}
    for run in submission["runs"]:
        for name, value in (run["settings"] or {}).items():
            logged.setdefault(name, {})[number(value)] = None
    own = [Setting(name, number(value), by_logs=False) for name, value in claimed.items()]
    others = [Setting(n, ", ".join(v), by_logs=True) for n, v in logged.items() if n not in claimed]
    return own + others

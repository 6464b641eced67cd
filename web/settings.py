"""The settings of a submission: those that its claim states, then those that its logs add."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from web.formats import number

View = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A setting with its values: one, or several where the runs differ."""

    name: str
    values: tuple[float, ...]
    by_logs: bool

    @property
    def text(self) -> str:
        """Every value as it is read."""
        return ", ".join(number(value) for value in self.values)


def stated_settings(submission: View) -> list[Setting]:
    """Every setting of a submission, each once; the claim's own word comes first."""
    claimed = submission["hyperparameters"]
    stated = [Setting(name, (value,), by_logs=False) for name, value in claimed.items()]
    logged: dict[str, dict[float, None]] = {}
    for run in submission["runs"]:
        for name, value in (run.get("settings") or {}).items():
            logged.setdefault(name, {})[value] = None
    added = [
        Setting(name, tuple(values), by_logs=True)
        for name, values in logged.items()
        if name not in claimed
    ]
    return stated + added

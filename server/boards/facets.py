"""What is on a board: the values a filter may choose, and which figures anybody has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# A menu of thousands is none; what is left out can be searched for.
MOST_CHOICES = 60
FIGURES = (
    "tta_seconds",
    "cv_percent",
    "epochs_to_target",
    "cost_usd",
    "latency_ms",
    "measured_latency_ms",
    "cost_usd_per_10000",
    "energy_joules",
    "samples_per_second",
    "precision",
    "precision_measured",
    "quality",
)
Counts = tuple[tuple[str, int], ...]


class HasFigures(Protocol):
    """What a field of a board entry can be asked of."""

    def figure(self, name: str) -> Any:
        """The value of a field."""


@dataclass(frozen=True)
class Facets:
    """The values on a whole board with how many entries have each, the most frequent first.

    `present` names the figures that some entry has; `qualities` are the lowest and the highest of
    the best qualities, `days` the first and the last day of a submission.
    """

    divisions: Counts = ()
    statuses: Counts = ()
    hardware_classes: Counts = ()
    frameworks: Counts = ()
    present: frozenset[str] = field(default_factory=frozenset)
    qualities: tuple[float, float] | None = None
    days: tuple[str, str] | None = None


def facets_of(rows: Sequence[HasFigures]) -> Facets:
    """What is on a board of these rows."""
    qualities = [value for row in rows if (value := row.figure("quality")) is not None]
    days = [str(row.figure("submitted_on") or row.figure("submitted_at"))[:10] for row in rows]
    return Facets(
        divisions=_counts(row.figure("division") for row in rows),
        statuses=_counts(row.figure("status") for row in rows),
        hardware_classes=_counts(row.figure("system")["hardware_class"] for row in rows),
        frameworks=_counts(row.figure("framework") for row in rows),
        present=frozenset(
            name for name in FIGURES if any(row.figure(name) is not None for row in rows)
        ),
        qualities=(min(qualities), max(qualities)) if qualities else None,
        days=(min(days), max(days)) if days else None,
    )


def _counts(values: Any) -> Counts:
    found = Counter(values)
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_CHOICES])

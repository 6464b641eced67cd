"""What is on a board: the values a filter may choose, and which figures anybody has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from server.boards.ranked import PlacedRow

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


def facets_of(rows: Sequence[PlacedRow]) -> Facets:
    """The values on a board of these rows."""
    shown = [placed.row.shown for placed in rows]
    qualities = [one["quality"] for one in shown if one["quality"] is not None]
    days = [placed.row.standing.submitted_at[:10] for placed in rows]
    return Facets(
        divisions=_counts(one["division"] for one in shown),
        statuses=_counts(one["status"] for one in shown),
        hardware_classes=_counts(one["system"]["hardware_class"] for one in shown),
        frameworks=_counts(one["framework"] for one in shown),
        present=frozenset(
            name for name in FIGURES if any(row.figure(name) is not None for row in rows)
        ),
        qualities=(min(qualities), max(qualities)) if qualities else None,
        days=(min(days), max(days)) if days else None,
    )


def _counts(values: Any) -> Counts:
    found = Counter(values)
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_CHOICES])

"""The protocol of a latency measurement, as a benchmark states it."""

import math
from dataclasses import dataclass

from finishline.rules.fields import Fields

MOST_ITEMS = 2000  # A backend's times, in whole passes, fit one line of the training process.
MOST_WARMUP_ITEMS = 200


@dataclass(frozen=True)
class LatencyProtocol:
    """One item at a time at batch size 1: `warmup_items` that do not count, then `items`.

    A smaller evaluation set is measured in whole passes until there are at least so many; of a
    larger one the first `items` are. `output_tolerance` is how far the outputs of a
    backend may be from those of eager, as a share of the largest output. `time_tolerance` is how
    much slower (0.5 = 50 %) another machine of a hardware class may be before that speaks against a
    claim; `alpha` the chance of an honest claim beyond it to be rejected. `limit_seconds` is for
    compiling, exporting and measuring, beside the training's own limit: after an eighth of it a
    backend ends as soon as it has FEWEST_ITEMS, after a quarter with the items it has.
    """

    items: int
    warmup_items: int
    output_tolerance: float
    time_tolerance: float
    alpha: float
    limit_seconds: float

    def samples_of(self, test_items: int | None) -> int:
        """Number of times that count for an evaluation set of so many items."""
        return samples_in_whole_passes(self.items, test_items)

    @property
    def enough_seconds(self) -> float:
        """After so many seconds a backend ends as soon as it has FEWEST_ITEMS."""
        return self.limit_seconds / 8

    @property
    def most_seconds(self) -> float:
        """Seconds after which a backend ends with the items it has."""
        return self.limit_seconds / 4


def samples_in_whole_passes(items: int, set_items: int | None) -> int:
    """At least `items` samples from whole passes over a set; `items` of one that has as many."""
    if not set_items or set_items >= items:
        return items
    return set_items * math.ceil(items / set_items)


def read_latency_protocol(table: Fields | None) -> LatencyProtocol | None:
    """The protocol in a benchmark's `[latency]` table. Raises its error, naming the field."""
    if table is None:
        return None
    protocol = LatencyProtocol(
        items=table.integer("items", minimum=64, maximum=MOST_ITEMS),
        warmup_items=table.integer("warmup_items", minimum=1, maximum=MOST_WARMUP_ITEMS),
        output_tolerance=table.number("output_tolerance", minimum=0.0, maximum=1.0),
        time_tolerance=table.number("time_tolerance", minimum=0.0),
        alpha=table.number("alpha", minimum=1e-6, maximum=0.5),
        limit_seconds=table.number("limit_seconds", minimum=1.0),
    )
    table.refuse_unknown()
    return protocol

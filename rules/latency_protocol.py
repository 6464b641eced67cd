"""How the latency of a benchmark's model is measured: the numbers of its `[latency]` table."""

from dataclasses import dataclass

from rules.fields import Fields

MOST_ITEMS = 2000  # A backend's times fit one line of the training process.
MOST_WARMUP_ITEMS = 200


@dataclass(frozen=True)
class LatencyProtocol:
    """One item at a time at batch size 1: `warmup_items` that do not count, then `items`.

    A smaller evaluation set is measured whole. `output_tolerance` is how far the outputs of a
    backend may be from those of eager, as a share of the largest output. `time_tolerance` is how
    much slower (0.5 = 50 %) another machine of a hardware class may be before that speaks against
    a claim; `alpha` the chance of an honest claim beyond it to be rejected. `limit_seconds` is for
    compiling, exporting and measuring, beside the training's own limit.
    """

    items: int
    warmup_items: int
    output_tolerance: float
    time_tolerance: float
    alpha: float
    limit_seconds: float

    def samples_of(self, test_items: int | None) -> int:
        """How many items count where the evaluation set has so many."""
        return self.items if test_items is None else min(self.items, test_items)


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

"""The figures that boards rank by, and the limits of each."""

from typing import Literal

from finishline.rules.benchmarks.prices import HIGHEST_USD_PER_HOUR
from finishline.rules.logs.dawnbench import (
    HIGHEST_COST_USD,
    LONGEST_LATENCY_MS,
    SHORTEST_LATENCY_MS,
)
from finishline.rules.statistics.aggregate import LONGEST_SECONDS, SHORTEST_SECONDS
from finishline.rules.submissions.claim import MOST_INSTANCES, Kind

Metric = Literal["tta", "cost", "energy", "latency", "inference_cost"]
# A board ranks submissions of one kind: a training and an inference have no figure in common.
KIND_OF_METRIC: dict[Metric, Kind] = {
    "tta": "train",
    "cost": "train",
    "energy": "train",
    "latency": "inference",
    "inference_cost": "inference",
}
# Limits of figures stated in a submission or its logs, each included: a claim beyond them is
# refused. Older stored submissions and those published elsewhere may have any figure.
# A megawatt for the longest time that a run may take.
MOST_JOULES = 1e6 * LONGEST_SECONDS
POSSIBLE: dict[str, tuple[float, float]] = {
    "tta_seconds": (SHORTEST_SECONDS, LONGEST_SECONDS),
    "cost_usd": (0.0, LONGEST_SECONDS / 3600 * MOST_INSTANCES * HIGHEST_USD_PER_HOUR),
    "energy_joules": (0.0, MOST_JOULES),
    "latency_ms": (SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS),
    "cost_usd_per_10000": (0.0, 1e4 * HIGHEST_COST_USD),
}

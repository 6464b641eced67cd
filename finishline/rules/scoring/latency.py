"""Compute the latency of one item at a time, as measured and as an inference entry states it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import inference_cost_usd_per_10000
from finishline.rules.errors import RuleError
from finishline.rules.logs.dawnbench import DawnbenchEntry
from finishline.rules.scoring.scoring import Step
from finishline.rules.statistics.aggregate import mean
from finishline.rules.text import count_text

# The fewest samples for a percentile. Source: MLPerf inference_policies, "Early stopping" (90th and
# 99th percentile).
FEWEST_SAMPLES: Mapping[int, int] = {90: 64, 99: 662}
FEWEST_ITEMS = 120  # Of a model so slow that all items would take too long. Enough for p90.
IN_PERCENT = "f1_score_in_percent"


@dataclass(frozen=True)
class LatencyFigures:
    """Statistics of measured items without warm-up, in milliseconds per item.

    Percentiles need enough samples. `drift_percent` is how much slower the median of the second
    half is than the first's. None below two samples.
    """

    samples: int
    mean_ms: float
    p50_ms: float
    p90_ms: float | None
    p99_ms: float | None
    items_per_second: float
    drift_percent: float | None


def latency_figures(milliseconds: Sequence[float], *, warmup_items: int) -> LatencyFigures:
    """Compute mean, percentiles and drift of items timed in a row, without the first ones.

    Raises RuleError if the warm-up takes all, or for a time up to 0.
    """
    kept = without_warmup(milliseconds, warmup_items=warmup_items)
    ordered = sorted(kept)
    average, drift_percent = mean(kept), None
    if middle := len(kept) // 2:
        first, second = (nearest_rank(sorted(half), 50) for half in (kept[:middle], kept[middle:]))
        drift_percent = (second / first - 1) * 100.0
    return LatencyFigures(
        samples=len(kept),
        mean_ms=average,
        p50_ms=nearest_rank(ordered, 50),
        p90_ms=percentile(ordered, 90),
        p99_ms=percentile(ordered, 99),
        items_per_second=1000.0 / average,
        drift_percent=drift_percent,
    )


def without_warmup(milliseconds: Sequence[float], *, warmup_items: int) -> list[float]:
    """Drop the warm-up. Raises RuleError for zero items left, or a time up to 0."""
    kept = list(milliseconds[warmup_items:])
    if not kept:
        message = f"{count_text(len(milliseconds), 'item')}, {warmup_items} of them warm-up"
        raise RuleError(message, expected="more items")
    for position, value in enumerate(kept):
        if not (math.isfinite(value) and value > 0):
            message = f"item {position} after the warm-up took {value} ms"
            raise RuleError(message, expected="a positive time")
    return kept


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return a percentile of sorted values, if they are enough."""
    return None if len(ordered) < FEWEST_SAMPLES[percent] else nearest_rank(ordered, percent)


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest of sorted values that at least so many percent do not exceed."""
    return ordered[max(0, math.ceil(percent * len(ordered) / 100) - 1)]


def median_lower_bound(values: Sequence[float], *, alpha: float) -> float | None:
    """Return the median's exact lower confidence bound (sign test) at 1 - `alpha`, or None."""
    n = len(values)
    allowed = Fraction(alpha) * 2**n  # In whole numbers: 2 to the power of 1100 is beyond a float.
    below, rank = 0, 0
    while rank < n and below + math.comb(n, rank) <= allowed:
        below += math.comb(n, rank)
        rank += 1
    return sorted(values)[rank - 1] if rank else None


@dataclass(frozen=True)
class InferenceResult:
    """Result of `score_inference`, all from the entry.

    `quality` is in the unit of the benchmark's metric, and `reached` says whether it meets the
    target. `latency_ms` is for one item at batch size 1. `flags` lists oddities of the entry.
    """

    benchmark_sha256: str
    metric: str
    quality: float
    reached: bool
    latency_ms: float
    cost_usd_per_10000: float | None
    flags: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def eligible(self) -> bool:
        """Whether the result may be ranked: the model must be as good as the target asks."""
        return self.reached


def score_inference(entry: DawnbenchEntry, benchmark: Benchmark) -> InferenceResult:
    """Score an inference entry under a benchmark's target.

    Raises RuleError if the entry lacks its latency or a quality in the benchmark's metric. Source:
    dawn-bench-entries README, "Inference".
    """
    target = benchmark.target
    if entry.latency_ms is None or entry.quality is None or entry.metric != target.metric:
        raise RuleError("no inference entry", expected=f"a latency and {target.metric}")
    cost = inference_cost_usd_per_10000(entry.cost_usd_per_item)
    sign = ">=" if target.direction == "higher" else "<="
    source = "as stated" if IN_PERCENT not in entry.flags else "stated in percent, divided by 100"
    formula = f"{target.metric} of the model {source}; ranked if {sign} {target.value:g}"
    of_cost = "Cost of one item as stated × 10,000"
    stated = {"one item (USD)": entry.cost_usd_per_item}
    return InferenceResult(
        benchmark_sha256=benchmark.sha256,
        metric=target.metric,
        quality=entry.quality,
        reached=target.is_reached(entry.quality),
        latency_ms=entry.latency_ms,
        cost_usd_per_10000=cost,
        flags=entry.flags,
        steps=(
            Step("quality", formula, {"target": target.value}, entry.quality, target.unit),
            Step("latency", "Of one item at batch size 1, as stated", {}, entry.latency_ms, "ms"),
            Step("cost of 10,000 items", of_cost, stated, cost, "USD"),
        ),
    )

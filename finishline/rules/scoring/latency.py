"""Latency of one item at a time: its protocol, percentiles, throughput, drift and cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from finishline.rules.benchmarks.prices import inference_cost_usd_per_10000
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import mean
from finishline.rules.text import count_text

# The fewest samples a percentile may be told from.
# Source: MLPerf inference_policies, "Early stopping" (90th and 99th percentile).
FEWEST_SAMPLES: Mapping[int, int] = {90: 64, 99: 662}


@dataclass(frozen=True)
class LatencyFigures:
    """Statistics of measured items without warm-up; all times are milliseconds per item.

    A percentile is None where there are not enough samples. `drift_percent` is how much slower
    (above 0) the median of the second half is than that of the first; None below two samples.
    """

    samples: int
    mean_ms: float
    p50_ms: float
    p90_ms: float | None
    p99_ms: float | None
    items_per_second: float
    drift_percent: float | None


@dataclass(frozen=True)
class LatencyResult:
    """The latency of a model of a known quality; `eligible` only if it meets the target."""

    figures: LatencyFigures
    quality: float
    eligible: bool
    cost_usd_per_10000: float | None


def latency_result(
    milliseconds: Sequence[float],
    *,
    warmup_items: int,
    quality: float,
    target: QualityTarget,
    price_usd_per_hour: float | None,
) -> LatencyResult:
    """Result of a model's measured items on a system of this price.

    Raises RuleError if nothing is left after the warm-up, or a time is no positive number.
    """
    figures = latency_figures(milliseconds, warmup_items=warmup_items)
    return LatencyResult(
        figures=figures,
        quality=quality,
        eligible=target.is_reached(quality),
        cost_usd_per_10000=latency_cost_usd_per_10000(figures.mean_ms, price_usd_per_hour),
    )


def latency_figures(milliseconds: Sequence[float], *, warmup_items: int) -> LatencyFigures:
    """Mean, percentiles and drift of items timed one after the other, without the first ones.

    Raises RuleError if nothing is left after the warm-up, or a time is no positive number.
    """
    kept = without_warmup(milliseconds, warmup_items=warmup_items)
    ordered = sorted(kept)
    average = mean(kept)
    return LatencyFigures(
        samples=len(kept),
        mean_ms=average,
        p50_ms=nearest_rank(ordered, 50),
        p90_ms=percentile(ordered, 90),
        p99_ms=percentile(ordered, 99),
        items_per_second=1000.0 / average,
        drift_percent=_drift_percent(kept),
    )


def without_warmup(milliseconds: Sequence[float], *, warmup_items: int) -> list[float]:
    """The items after the warm-up. Raises RuleError if there are none, or one has no time."""
    kept = list(milliseconds[warmup_items:])
    if not kept:
        raise RuleError(
            f"{count_text(len(milliseconds), 'item')}, {warmup_items} of them warm-up",
            expected="more items",
        )
    for position, value in enumerate(kept):
        if not (math.isfinite(value) and value > 0):
            raise RuleError(
                f"item {position} after the warm-up took {value} ms", expected="a positive time"
            )
    return kept


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """A percentile of sorted values, or None below the samples it needs.

    Raises KeyError for a percentile that no floor is known for.
    """
    return None if len(ordered) < FEWEST_SAMPLES[percent] else nearest_rank(ordered, percent)


def distribution(values: Sequence[float]) -> dict[str, float | int | None]:
    """Count, mean and percentiles of some values, by nearest rank; None below enough samples."""
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "mean": mean(ordered),
        "p50": nearest_rank(ordered, 50),
        "p90": percentile(ordered, 90),
        "p99": percentile(ordered, 99),
    }


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest of sorted values that at least so many percent of them do not exceed."""
    return ordered[max(0, math.ceil(percent * len(ordered) / 100) - 1)]


def why_absent(samples: int, percent: int) -> str | None:
    """Reason why a percentile has too few samples, or None if it has enough."""
    floor = FEWEST_SAMPLES[percent]
    return f"not enough samples: {samples} of {floor}" if samples < floor else None


def median_lower_bound(values: Sequence[float], *, alpha: float) -> float | None:
    """Lower confidence bound of the median at level 1 - `alpha`; None from too few values.

    The k-th smallest of n exceeds the median with the chance that fewer than k of n coin tosses
    show heads (exact for any distribution).
    """
    n = len(values)
    allowed = Fraction(alpha) * 2**n  # In whole numbers: no float holds 2 to the power of 1100.
    below, rank = 0, 0
    while rank < n and below + math.comb(n, rank) <= allowed:
        below += math.comb(n, rank)
        rank += 1
    return sorted(values)[rank - 1] if rank else None


def latency_cost_usd_per_10000(
    milliseconds_per_item: float, price_usd_per_hour: float | None
) -> float | None:
    """US dollars for 10,000 items one at a time; None without a price."""
    if price_usd_per_hour is None:
        return None
    return inference_cost_usd_per_10000(
        milliseconds_per_item / 1000.0 / 3600.0 * price_usd_per_hour
    )


def _drift_percent(kept: Sequence[float]) -> float | None:
    if len(kept) < 2:
        return None
    middle = len(kept) // 2
    first, second = (nearest_rank(sorted(half), 50) for half in (kept[:middle], kept[middle:]))
    return (second / first - 1) * 100.0


FEWEST_ITEMS = 120  # Of a model so slow that all items would take too long; enough for p90.

"""Who is first: one order for JSON, CSV and pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rules.claim import Kind

Metric = Literal["tta", "cost", "latency", "inference_cost"]
# A board ranks submissions of one kind: a training and an inference have no figure in common.
KIND_OF_METRIC: dict[Metric, Kind] = {
    "tta": "train",
    "cost": "train",
    "latency": "inference",
    "inference_cost": "inference",
}
FIGURE_OF_METRIC: dict[Metric, str] = {
    "tta": "tta_seconds",
    "cost": "cost_usd",
    "latency": "latency_ms",
    "inference_cost": "cost_usd_per_10000",
}
Status = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]


@dataclass(frozen=True)
class Standing:
    """What ranking needs to know of one submission. Absent figures are None.

    `cost_usd` is what a training cost, `cost_usd_per_10000` what 10,000 items of inference do. A
    `withdrawn` one never ranks.
    """

    submission_id: str
    status: Status
    submitted_at: str
    tta_seconds: float | None
    cost_usd: float | None
    latency_ms: float | None
    eligible: bool
    cost_usd_per_10000: float | None = None
    withdrawn: bool = False


@dataclass(frozen=True)
class Ranked:
    """A submission's place: `rank` from 1, equal values share it (`tied`).

    `rank` is None for a submission that is not ranked, and `unranked_reason` says why.
    """

    submission_id: str
    rank: int | None
    tied: bool
    value: float | None
    unranked_reason: str | None


def rank(standings: Sequence[Standing], *, metric: Metric) -> list[Ranked]:
    """The board's order: smallest value first, equal values share a rank, unranked ones last.

    Ties and unranked submissions stand in the order they were submitted. A rank counts how many
    are strictly better, plus one ("1, 2, 2, 4").
    """
    in_time = sorted(standings, key=lambda s: (s.submitted_at, s.submission_id))
    reasons = {s.submission_id: why_unranked(s, metric=metric) for s in in_time}
    values = {s.submission_id: metric_value(s, metric=metric) for s in in_time}
    ranked = [s for s in in_time if reasons[s.submission_id] is None]
    ordered = sorted(ranked, key=lambda s: values[s.submission_id] or 0.0)
    amounts = [values[s.submission_id] for s in ordered]
    places: list[Ranked] = []
    for position, (standing, amount) in enumerate(zip(ordered, amounts, strict=True)):
        same_as_before = position > 0 and amounts[position - 1] == amount
        same_as_next = position + 1 < len(amounts) and amounts[position + 1] == amount
        place = places[-1].rank if same_as_before else position + 1
        places.append(
            Ranked(standing.submission_id, place, same_as_before or same_as_next, amount, None)
        )
    unranked = [s for s in in_time if reasons[s.submission_id] is not None]
    return places + [
        Ranked(s.submission_id, None, False, values[s.submission_id], reasons[s.submission_id])
        for s in unranked
    ]


def metric_value(standing: Standing, *, metric: Metric) -> float | None:
    """The figure a board of this metric orders by."""
    figure: float | None = getattr(standing, FIGURE_OF_METRIC[metric])
    return figure


def why_unranked(standing: Standing, *, metric: Metric) -> str | None:
    """One sentence on why a submission is not ranked, or None if it is."""
    if standing.withdrawn:
        return "withdrawn"
    if standing.status == "rejected":
        return "rejected by its verification"
    inference = KIND_OF_METRIC[metric] == "inference"
    if not standing.eligible:
        # All that is asked of an inference is that its model meets the quality target.
        return "did not reach the target" if inference else "breaks a rule of the benchmark"
    if metric_value(standing, metric=metric) is not None:
        return None
    if inference:
        return "no latency was measured" if metric == "latency" else "states no cost"
    if standing.tta_seconds is None:
        return "did not reach the target"
    return "states no price"


def pareto_front(standings: Sequence[Standing]) -> list[str]:
    """Ids of the submissions that no other beats in time or cost without losing in the other.

    Fastest first; submissions equal in both stand together, in the order they were submitted.
    """
    complete = [
        s
        for s in standings
        if s.tta_seconds is not None
        and s.cost_usd is not None
        and why_unranked(s, metric="cost") is None
    ]
    front: list[str] = []
    best = (math.inf, math.inf)
    for s in sorted(complete, key=_by_time_and_cost):
        time, cost = _by_time_and_cost(s)[:2]
        if cost < best[1] or (time, cost) == best:
            front.append(s.submission_id)
            best = (time, cost)
    return front


def _by_time_and_cost(s: Standing) -> tuple[float, float, str, str]:
    return s.tta_seconds or 0.0, s.cost_usd or 0.0, s.submitted_at, s.submission_id

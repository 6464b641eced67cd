"""Who is first: one order for JSON, CSV and pages."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rules.claim import MOST_INSTANCES, Kind
from rules.logs.dawnbench_entry import (
    HIGHEST_COST_USD,
    LONGEST_LATENCY_MS,
    SHORTEST_LATENCY_MS,
)
from rules.price_book import HIGHEST_USD_PER_HOUR
from rules.significance import LONGEST_SECONDS, SHORTEST_SECONDS

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
# What a submission states or its logs say is within these, each included: a claim beyond them is
# refused. What was stored before it was, and what was published elsewhere, may have any figure.
POSSIBLE: dict[str, tuple[float, float]] = {
    "tta_seconds": (SHORTEST_SECONDS, LONGEST_SECONDS),
    "cost_usd": (0.0, LONGEST_SECONDS / 3600 * MOST_INSTANCES * HIGHEST_USD_PER_HOUR),
    "latency_ms": (SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS),
    "cost_usd_per_10000": (0.0, 1e4 * HIGHEST_COST_USD),
}
IMPOSSIBLE = {
    "tta_seconds": "its time is none that a training can take",
    "cost_usd": "its cost is none that a training can have",
    "latency_ms": "its latency is none that an item can take",
    "cost_usd_per_10000": "its cost is none that an item can have",
}
Status = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]


@dataclass(frozen=True)
class Standing:
    """What ranking needs to know of one submission. Absent figures are None.

    `cost_usd` is what a training cost, `cost_usd_per_10000` what 10,000 items of inference do. A
    `withdrawn` one never ranks. `handed_in_before` says of one that is not eligible that it breaks
    no rule: its runs are in an earlier submission.
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
    handed_in_before: bool = False


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


@dataclass(frozen=True)
class Order:
    """A board's order, into which a changed submission can be put without sorting the others again.

    `ranked` holds (value, when submitted, id), `unranked` (when submitted, id, value, reason).
    """

    metric: Metric
    ranked: tuple[tuple[float, str, str], ...]
    unranked: tuple[tuple[str, str, float | None, str], ...]

    def __len__(self) -> int:
        return len(self.ranked) + len(self.unranked)

    def place(self, position: int) -> Ranked:
        """Who stands at a position, counted from 0, in constant time but for ties."""
        if position >= len(self.ranked):
            _, submission_id, value, reason = self.unranked[position - len(self.ranked)]
            return Ranked(submission_id, None, False, value, reason)
        value, _, submission_id = self.ranked[position]
        first = position
        if position > 0 and self.ranked[position - 1][0] == value:
            first = bisect_left(self.ranked, value, hi=position, key=_value)
        last = position + 1 == len(self.ranked) or self.ranked[position + 1][0] != value
        return Ranked(submission_id, first + 1, first < position or not last, value, None)

    def changed(self, *, gone: Iterable[Standing], come: Iterable[Standing]) -> "Order":
        """The order without some submissions of it, as they stood in it, and with others."""
        ranked, unranked = list(self.ranked), list(self.unranked)
        for standing in gone:
            which, key = _split(standing, ranked, unranked, metric=self.metric)
            del which[bisect_left(which, key)]
        for standing in come:
            which, key = _split(standing, ranked, unranked, metric=self.metric)
            which.insert(bisect_left(which, key), key)
        return Order(self.metric, tuple(ranked), tuple(unranked))


def order_of(standings: Iterable[Standing], *, metric: Metric) -> Order:
    """The board's order: smallest value first, unranked ones last.

    Equal values and unranked submissions stand in the order they were submitted.
    """
    ranked: list[Any] = []
    unranked: list[Any] = []
    for standing in standings:
        which, key = _split(standing, ranked, unranked, metric=metric)
        which.append(key)
    return Order(metric, tuple(sorted(ranked)), tuple(sorted(unranked)))


def rank(standings: Sequence[Standing], *, metric: Metric) -> list[Ranked]:
    """Everybody's place in the board's order; equal values share a rank.

    A rank counts how many are strictly better, plus one ("1, 2, 2, 4").
    """
    order = order_of(standings, metric=metric)
    return [order.place(position) for position in range(len(order))]


def _split(
    standing: Standing, ranked: list[Any], unranked: list[Any], *, metric: Metric
) -> tuple[list[Any], tuple[Any, ...]]:
    """Which of two lists a submission belongs to, and what it is sorted by in it. No two share an
    id, so nothing after it is ever compared.
    """
    value, reason = metric_value(standing, metric=metric), why_unranked(standing, metric=metric)
    if reason is None:
        return ranked, (value, standing.submitted_at, standing.submission_id)
    return unranked, (standing.submitted_at, standing.submission_id, value, reason)


def _value(key: tuple[float, str, str]) -> float:
    return key[0]


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
        if standing.handed_in_before:
            return "its logs were handed in before"
        # All that is asked of an inference is that its model meets the quality target.
        return "did not reach the target" if inference else "breaks a rule of the benchmark"
    if metric_value(standing, metric=metric) is not None:
        return _why_impossible(standing, metric=metric)
    if inference:
        return "no latency was measured" if metric == "latency" else "states no cost"
    if standing.tta_seconds is None:
        return "did not reach the target"
    return "states no price"


def _why_impossible(standing: Standing, *, metric: Metric) -> str | None:
    """Nobody is beaten by a figure that none can have; what a training cost rests on its time."""
    ranked_by = FIGURE_OF_METRIC[metric]
    for name in ("tta_seconds", ranked_by) if metric == "cost" else (ranked_by,):
        figure, (lowest, highest) = getattr(standing, name), POSSIBLE[name]
        if figure is not None and not lowest <= figure <= highest:
            return IMPOSSIBLE[name]
    return None


def pareto_front(standings: Sequence[Standing]) -> list[str]:
    """Ids of the submissions that no other beats in time or cost without losing in the other.

    Fastest first; submissions equal in both stand together, in the order they were submitted.
    Any amount of which less is better may stand for the cost: it need be none that can be paid.
    """
    complete = [
        s
        for s in standings
        if s.tta_seconds is not None
        and s.cost_usd is not None
        and why_unranked(s, metric="tta") is None
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

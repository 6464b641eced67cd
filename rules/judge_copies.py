"""Does a claimed curve follow a calibrated one more closely than two honest runs ever do?

Or another one of its own set: one training handed in under several seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rules.benchmark import ReplayPolicy
from rules.calibrated_runs import Curves
from rules.verdict import SHARES, Reason

FEWEST_EPOCHS = 5
# Honest curves differ in at least so many independent ways: the chance of one closer than a small
# distance falls with this power of it.
WAYS_TO_DIFFER = 3

ByEpoch = Sequence[float | None]


@dataclass(frozen=True)
class _Nearest:
    """How close a curve comes to `other`, and how close the nearest of two honest ones come."""

    other: str
    distance: float
    median: float

    @property
    def closeness(self) -> float:
        return self.distance / self.median if self.median else float("inf")


def judge_copies(
    names: Sequence[str],
    readings: Sequence[Sequence[ByEpoch]],
    known: Curves,
    policy: ReplayPolicy,
) -> list[Reason]:
    """A reason for each curve that is a calibrated one, or another of the set, but for some noise.

    `readings` has each curve by epoch, in one way or more where its epochs may be told otherwise
    than they were. The distance of two curves is the root of the mean square of their difference.
    Of the calibrated curves half are nearer than `median` to another; a share a / N of honest
    curves is nearer than median * (2 a / N) ^ (1 / 3) or still less. N counts the readings, and a
    curve of the set that each is held against beside the n calibrated ones as the nth part of one.
    The early epochs, where honest runs differ most, weigh most: noise large enough to hide a copy
    in them would show in the later ones.
    """
    alpha = policy.alpha * SHARES.copied
    beside = 1 + (len(readings) - 1) / (2 * len(known))
    figures = max(1.0, sum(len(each) for each in readings) * beside)
    share = (2 * alpha / figures) ** (1 / WAYS_TO_DIFFER)
    reasons = []
    for index, (name, own) in enumerate(zip(names, readings, strict=True)):
        others = [(names[i], other) for i in range(index) for other in readings[i]]
        found = [nearest for reading in own for nearest in _all_near(reading, others, known)]
        nearest = min(found, key=lambda near: near.closeness, default=None)
        if nearest is not None and nearest.closeness < share:
            reasons.append(_copied(name, nearest, share * nearest.median))
    return reasons


def _copied(name: str, nearest: _Nearest, limit: float) -> Reason:
    return Reason(
        "curve_copied",
        "leaves_open",
        f"{name} stays within {nearest.distance:.2g} of {nearest.other}, where the nearest of "
        f"two trainings are {nearest.median:.2g} apart: train with a seed of your own",
        {"distance": nearest.distance, "honest_median": nearest.median, "limit": limit},
    )


def _all_near(
    curve: ByEpoch, others: Sequence[tuple[str, ByEpoch]], known: Curves
) -> list[_Nearest]:
    """The nearest calibrated curve, and those of the set that have enough epochs in common."""
    length = min(len(curve), *(len(each) for each in known))
    places = _places(curve, length=length)
    if len(places) < FEWEST_EPOCHS:
        return []
    distances = [_distance(curve, each, places) for each in known]
    index = min(range(len(known)), key=distances.__getitem__)
    median = _median_distance(known, places)
    found = [_Nearest(f"calibrated run {index + 1}", distances[index], median)]
    for name, other in others:
        both = tuple(p for p in _places(other, length=min(length, len(other))) if p in places)
        if len(both) >= FEWEST_EPOCHS:
            median = _median_distance(known, both)
            found.append(_Nearest(name, _distance(curve, other, both), median))
    return found


def _places(curve: ByEpoch, *, length: int) -> tuple[int, ...]:
    return tuple(place for place in range(length) if curve[place] is not None)


def _distance(one: ByEpoch, other: ByEpoch, places: Sequence[int]) -> float:
    squares = [((one[p] or 0.0) - (other[p] or 0.0)) ** 2 for p in places]
    return float((sum(squares) / len(places)) ** 0.5)


@lru_cache(maxsize=256)
def _median_distance(known: Curves, places: tuple[int, ...]) -> float:
    """The median, over calibrated curves, of the distance to the nearest other at some epochs."""
    import numpy as np

    curves = np.array([[curve[place] for place in places] for curve in known])  # (runs, epochs)
    distances = np.sqrt(((curves[:, None] - curves[None]) ** 2).mean(axis=2))  # (runs, runs)
    np.fill_diagonal(distances, np.inf)
    return float(np.median(distances.min(axis=1)))

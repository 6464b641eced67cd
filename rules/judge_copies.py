"""Does a claimed curve follow a calibrated one more closely than two honest runs ever do?"""

import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rules.benchmark import ReplayPolicy
from rules.calibrated_runs import Curves
from rules.verdict import SHARES, Reason

FEWEST_EPOCHS = 5
# Honest curves differ in at least so many independent ways: the chance of one closer than a small
# distance falls with this power of it.
WAYS_TO_DIFFER = 3


def judge_copies(
    names: Sequence[str],
    by_epoch: Sequence[Sequence[float | None]],
    known: Curves,
    policy: ReplayPolicy,
) -> list[Reason]:
    """A reason for each curve that is a calibrated one, or one with a little noise on it.

    The distance of two curves is the root of the mean square of their difference. Of the calibrated
    curves half are nearer than `median` to another; a share a / N of honest curves is nearer than
    median * (2 a / N) ^ (1 / 3) or still less. The early epochs, where honest runs differ most,
    weigh most: noise large enough to hide a copy in them would show in the later ones.
    """
    alpha = policy.alpha * SHARES.copied
    share = (2 * alpha / max(1, len(by_epoch))) ** (1 / WAYS_TO_DIFFER)
    reasons = []
    for name, curve in zip(names, by_epoch, strict=True):
        nearest = _nearest(curve, known)
        if nearest is None:
            continue
        index, distance, median = nearest
        if distance < share * median:
            reasons.append(_copied(name, index, distance, median, share * median))
    return reasons


def _copied(name: str, index: int, distance: float, median: float, limit: float) -> Reason:
    return Reason(
        "curve_copied",
        "leaves_open",
        f"{name} stays within {distance:.2g} of calibrated run {index + 1}, where the nearest of "
        f"two trainings are {median:.2g} apart: train with a seed of your own",
        {"distance": distance, "honest_median": median, "limit": limit},
    )


def _nearest(curve: Sequence[float | None], known: Curves) -> tuple[int, float, float] | None:
    """Index and distance of the nearest calibrated curve, and the median of honest distances.

    None below FEWEST_EPOCHS epochs, and where an epoch has no evaluation.
    """
    import numpy as np

    calibrated, medians = _calibrated(known)
    length = min(len(curve), calibrated.shape[1])
    if length < FEWEST_EPOCHS or any(quality is None for quality in curve[:length]):
        return None
    own = np.array(curve[:length], dtype=float)
    distances = np.sqrt(((calibrated[:, :length] - own) ** 2).mean(axis=1))
    index = int(distances.argmin())
    return index, float(distances[index]), medians[length - 1]


@lru_cache(maxsize=64)
def _calibrated(known: Curves) -> tuple[Any, tuple[float, ...]]:
    """The curves as an array, and for each length the median distance to the nearest other."""
    import numpy as np

    shortest = min(len(curve) for curve in known)
    curves = np.array([curve[:shortest] for curve in known])  # (runs, epochs)
    squares = ((curves[:, None] - curves[None]) ** 2).cumsum(axis=2)  # (runs, runs, epochs)
    distances = np.sqrt(squares / np.arange(1, shortest + 1))
    distances[np.arange(len(known)), np.arange(len(known))] = np.inf
    nearest = distances.min(axis=1)  # (runs, epochs)
    return curves, tuple(statistics.median(column) for column in nearest.T.tolist())

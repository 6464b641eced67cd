"""Ghosts: curves of a submission that a replay is held beside while it runs, as in a race."""

import itertools
from collections.abc import Sequence

from finishline.rules.run import Evaluation
from server.boards.schemas import GhostPointView

CLOSE = 0.01  # Of an evaluation: epochs are decimal numbers in logs.


def median_run(times: Sequence[float | None]) -> int | None:
    """Index of the median run, by seconds, of those that reached the target.

    Of an even number it is the faster of the two in the middle: a ghost is a run that was made.
    None if no run reached the target.
    """
    reached = sorted((seconds, place) for place, seconds in enumerate(times) if seconds is not None)
    return reached[(len(reached) - 1) // 2][1] if reached else None


def mean_curve(curves: Sequence[Sequence[Evaluation]]) -> list[GhostPointView]:
    """The mean over runs of seconds and quality, evaluation by evaluation.

    It ends where fewer than half of the runs still train: those that stop early are the fast ones.
    """
    points = []
    for index, row in enumerate(itertools.zip_longest(*curves), start=1):
        there = [evaluation for evaluation in row if evaluation is not None]
        if 2 * len(there) < len(curves):
            break
        points.append(
            GhostPointView(
                index=index,
                epoch=there[0].epoch,
                seconds=sum(each.seconds for each in there) / len(there),
                quality=sum(each.quality for each in there) / len(there),
                runs=len(there),
            )
        )
    return points


def run_curve(
    curve: Sequence[Evaluation], *, epochs_per_evaluation: float | None
) -> list[GhostPointView]:
    """One run, each evaluation beside the replay's of the same epoch.

    `epochs_per_evaluation` is the replay's; where it or an epoch is not known, evaluations are
    counted.
    """
    return [
        GhostPointView.of(
            evaluation, index=_index_at(evaluation.epoch, count, epochs_per_evaluation), runs=1
        )
        for count, evaluation in enumerate(curve, start=1)
    ]


def epochs_per_evaluation(points: Sequence[GhostPointView]) -> float | None:
    """Epochs between the evaluations of a mean curve; None where its logs do not tell."""
    last = points[-1].epoch if points else None
    return (last / len(points) or None) if last else None


def _index_at(epoch: float | None, count: int, epochs_each: float | None) -> int | None:
    if epoch is None or epochs_each is None:
        return count
    place = epoch / epochs_each
    nearest = round(place)
    return nearest if nearest >= 1 and abs(place - nearest) <= CLOSE else None

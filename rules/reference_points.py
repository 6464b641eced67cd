"""The reference's convergence over batch sizes, to be drawn: points, pruned envelope, limit."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rules.benchmark import Benchmark
from rules.convergence import ConvergenceLimit, ReferencePoint, convergence_limits, limit_at, prune
from rules.run import Evaluation
from rules.tta import first_evaluation_at_target

STEPS_BETWEEN_POINTS = 12


@dataclass(frozen=True)
class ReferenceCurve:
    """Limits by batch size: at every point, at those pruning keeps, and between the kept ones.

    `judged` is whether submissions are held to `lowest`, less `allowance`; where not, it is for
    nobody to read.
    """

    judged: bool
    allowance: float
    points: tuple[ConvergenceLimit, ...]
    kept: tuple[ConvergenceLimit, ...]
    envelope: tuple[ConvergenceLimit, ...]


def reference_curve(benchmark: Benchmark) -> ReferenceCurve:
    """How the reference converges at each batch size; without any point if nobody knows."""
    rule, runs = benchmark.rcp, benchmark.runs
    points = rule.points if rule else calibrated_points(benchmark)
    limits = convergence_limits(
        points,
        runs=max(3, runs.count),
        dropped=runs.dropped,
        stdev_of=rule.stdev_of if rule else "all",
        pruned=False,
    )
    kept = prune(limits) if rule else limits
    return ReferenceCurve(
        judged=rule is not None,
        allowance=rule.allowance if rule else 0.0,
        points=tuple(limits),
        kept=tuple(kept),
        envelope=tuple(_envelope(kept, runs=max(3, runs.count))),
    )


def calibrated_points(benchmark: Benchmark) -> tuple[ReferencePoint, ...]:
    """Epochs to the target of the calibrated runs, which are evaluated after every epoch.

    A run that never reached it is left out, and so is a batch size with too few runs to average.
    """
    sizes = sorted({run.batch_size for run in benchmark.reference_runs})
    points = [ReferencePoint(size, tuple(calibrated_epochs(benchmark, size))) for size in sizes]
    return tuple(point for point in points if len(point.epochs) > 2 * benchmark.runs.dropped)


def calibrated_epochs(benchmark: Benchmark, batch_size: float) -> list[float]:
    """Epochs to the target of the calibrated runs at a batch size that reached it."""
    epochs = []
    for run in benchmark.reference_runs_at(batch_size):
        curve = [Evaluation(float(j), 0.0, quality) for j, quality in enumerate(run.quality, 1)]
        hit = first_evaluation_at_target(curve, benchmark.target, benchmark.reach)
        epochs += [hit.epoch] if hit is not None and hit.epoch is not None else []
    return epochs


def _envelope(kept: Sequence[ConvergenceLimit], *, runs: int) -> list[ConvergenceLimit]:
    """The kept points and steps between them, even on a logarithmic axis."""
    sizes = {point.batch_size for point in kept}
    for low, high in itertools.pairwise(kept):
        ratio = high.batch_size / low.batch_size
        for step in range(1, STEPS_BETWEEN_POINTS):
            sizes.add(math.floor(low.batch_size * ratio ** (step / STEPS_BETWEEN_POINTS)))
    limits = [limit_at(size, kept, runs=runs) for size in sorted(sizes)]
    return [limit for limit in limits if limit is not None]

"""Compute the band a replay must stay in, evaluation by evaluation, and find known curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.statistics.aggregate import mean, standard_deviation
from finishline.rules.statistics.gaps import t_quantile
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.messages import ControlPoint, ReplayReport
from finishline.rules.verification.verdict import SHARES


def band_for(benchmark: Benchmark, claim: Claim, *, runs: int) -> list[ControlPoint]:
    """Return the control points of a claim's replay, empty for uncalibrated settings."""
    policy, resolution = benchmark.replay, benchmark.target.resolution
    if policy is None or not is_calibrated(benchmark, claim):
        return []
    known = benchmark.reference_runs_at(batch_size_of(benchmark, claim))
    curves = tuple(run.quality for run in known)
    alpha = policy.alpha * SHARES.replay_band
    return control_points(curves, runs=runs, alpha=alpha, resolution=resolution or 0.0)


def is_calibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether reference runs exist for the claimed settings: defaults but for the batch size."""
    runs = benchmark.reference_runs_at(batch_size_of(benchmark, claim))
    return has_default_settings(benchmark, claim) and bool(runs)


def precision_of(benchmark: Benchmark, claim: Claim) -> PrecisionName | None:
    """Return the precision to train a claim in, unless it is the reference's or the code's own."""
    if benchmark.replay is None or claim.package is not None:
        return None
    return benchmark.replay.told(claim.precision)


def has_default_settings(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether a claim has the reference's settings in everything but the batch size."""
    defaults = benchmark.defaults()
    return all(
        name == "batch_size" or value == defaults.get(name)
        for name, value in claim.hyperparameters.items()
    )


def batch_size_of(benchmark: Benchmark, claim: Claim) -> float:
    """Return a claim's batch size: its own, or the reference default."""
    settings = benchmark.defaults() | dict(claim.hyperparameters)
    return settings.get("batch_size", 0.0)


@dataclass(frozen=True)
class BandBreak:
    """A replay left the band at one control point."""

    index: int
    quality: float
    lower: float
    upper: float
    side: str


def control_points(
    reference_curves: Sequence[Sequence[float]],
    *,
    runs: int,
    alpha: float,
    resolution: float,
) -> list[ControlPoint]:
    """Compute the prediction band of `runs` further runs, one point per evaluation.

    For evaluation j of m: mean +- t(1 - alpha / (2 m runs), n - 1) * s * sqrt(1 + 1 / n) over the n
    reference qualities, s with ddof = 1 and the half width at least `resolution`. All evaluations
    of all `runs` stay inside with probability at least 1 - alpha. Empty below 2 * runs reference
    curves, which count to the shortest.
    Source: Bonferroni bound on the Student-t prediction interval (Hahn & Meeker, "Statistical
    Intervals", 4.7).
    """
    n = len(reference_curves)
    if n < 2 * runs:
        return []
    m = min(len(curve) for curve in reference_curves)
    quantile = t_quantile(1 - alpha / (2 * m * runs), n - 1)
    points = []
    for j in range(m):
        column = [curve[j] for curve in reference_curves]
        spread = standard_deviation(column, ddof=1)
        half = max(resolution, quantile * spread * math.sqrt(1 + 1 / n))
        centre = mean(column)
        points.append(ControlPoint(j + 1, centre, centre - half, centre + half))
    return points


def first_break(
    qualities: Sequence[float], points: Sequence[ControlPoint], *, higher_is_better: bool
) -> BandBreak | None:
    """Return the first point outside the band: "below" is worse, "above" better. Else None."""
    for quality, point in zip(qualities, points, strict=False):
        if point.lower <= quality <= point.upper:
            continue
        worse = quality < point.lower if higher_is_better else quality > point.upper
        side = "below" if worse else "above"
        return BandBreak(point.index, quality, point.lower, point.upper, side)
    return None


# Curves with fewer different qualities may agree by chance: a failing training keeps its quality.
DISTINCT_QUALITIES = 4


@dataclass(frozen=True)
class KnownCurve:
    """A stored curve: its origin in words, its seed if it is known, its qualities."""

    origin: str
    seed: int | None
    qualities: tuple[float, ...]


def calibrated_curves(benchmark: Benchmark) -> list[KnownCurve]:
    """Return the curves of a definition, or of its adopted calibration."""
    return [
        KnownCurve(f"the calibrated run with seed {run.seed}", run.seed, tuple(run.quality))
        for run in benchmark.reference_runs
    ]


def check_curves(report: ReplayReport, known: Sequence[KnownCurve]) -> None:
    """Raise RuleError, naming the run, if a run equals another of the report or a known one.

    Curves of one seed may be equal: one machine trains a seed alike each time.
    """
    curves = [tuple(item.quality for item in run.evaluations) for run in report.runs]
    equal = [
        (second, other, f"run {first} of the report")
        for (first, curve), (second, other) in combinations(enumerate(curves), 2)
        if report.runs[first].seed != report.runs[second].seed and are_twins(curve, other)
    ]
    equal += [
        (run.index, curve, stored.origin)
        for run, curve in zip(report.runs, curves, strict=True)
        for stored in known
        if stored.seed != run.seed and are_twins(curve, stored.qualities)
    ]
    for index, curve, origin in equal:
        evaluations = count_text(len(curve), "evaluation")
        raise RuleError(
            f"run {index} of the report: its {evaluations} are those of {origin}",
            field=f"runs[{index}].evaluations",
            expected="a curve of its own seed",
        )


def are_twins(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two curves agree as far as both go, and go far enough to tell trainings apart."""
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared] and len(set(first[:shared])) >= DISTINCT_QUALITIES

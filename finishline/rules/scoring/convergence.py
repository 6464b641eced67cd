"""Reference convergence points (RCP): does a set converge as the reference model does?

A closed submission may not reach the target in fewer epochs (or samples) than the reference needs
at its batch size: that would be another training, not a faster machine.
Source: MLPerf training_rules.adoc, "Reference Convergence Points" and its appendix; where the rule
text and its checker (mlperf-logging) differ, the benchmark file says which reading holds.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from finishline.rules.benchmarks.definition_tables import ConvergenceUnit, ReferencePoint, SpreadOf
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.statistics.aggregate import Reference, mean, olympic_mean, standard_deviation
from finishline.rules.statistics.gaps import lowest_mean
from finishline.rules.text import count_text

Verdict = Literal["pass", "fail", "missing", "published"]
FACTOR_COUNTS = ("pass", "published")
ALPHA = 0.05
EPOCH_DECIMALS = 3
NORMALISED = ", normalised"
# Both sides of the test come from sums of decimal fractions such as 0.85.
ROUNDING = 1e-12
# Published factors may have three decimals.
ROUNDED_FACTOR = 1e-3


@dataclass(frozen=True)
class ConvergenceLimit:
    """Mean and spread of the reference at a batch size, and the least mean a set may have."""

    batch_size: int
    mean: float
    stdev: float
    lowest: float


@dataclass(frozen=True)
class RcpVerdict:
    """Verdict on the convergence of a set.

    `verdict` is "pass", "fail" (converges faster than the reference can), "missing" (no reference
    point to compare with) or "published" (one of these two, with the factor of a `scaling.json`).
    `factor` is reference mean / submission mean, never below 1; a score is multiplied by it only on
    "pass" and "published" (`applied_factor`). `batch_size`, `mean` and `lowest` are of the
    reference point that was used, None where there is none; `lowest` is the limit of the test
    itself, before any allowance. `submission_mean` is the olympic mean of the set, None where too
    few runs converged.
    """

    verdict: Verdict
    message: str
    factor: float
    batch_size: int | None = None
    mean: float | None = None
    lowest: float | None = None
    submission_mean: float | None = None

    @property
    def applied_factor(self) -> float:
        """Factor on the time of the set."""
        return self.factor if self.verdict in FACTOR_COUNTS else 1.0

    @property
    def normalised(self) -> bool:
        """Whether the time of the set is raised because it converged faster than the mean."""
        return self.applied_factor > 1.0


def takes_published_factor(verdict: RcpVerdict | None, factor: float) -> bool:
    """Whether the factor of a scaling.json counts: without a reference point to compare with, or
    for a set that converged too fast, where it raises the set to the reference's mean.

    Source: MLPerf training_rules.adoc, "Normalize submission run epochs to reference epochs to pass
    RCP test".
    """
    if verdict is None or verdict.verdict == "missing":
        return True
    if verdict.verdict != "fail" or verdict.mean is None or verdict.submission_mean is None:
        return False
    return factor * verdict.submission_mean >= verdict.mean * (1 - ROUNDED_FACTOR)


def scaled_as_published(verdict: RcpVerdict | None, factor: float) -> RcpVerdict:
    """The verdict on a set that takes the factor of its scaling.json."""
    verdict = verdict or RcpVerdict("missing", "no reference convergence points", 1.0)
    message = f"{verdict.message}, normalised by the factor of its scaling.json"
    return replace(verdict, verdict="published", message=message, factor=factor)


def convergence_of_run(
    run: Run, *, unit: ConvergenceUnit, at: Evaluation | None = None
) -> float | None:
    """Epochs (or samples) to the last evaluation of a run that succeeded, None for any other.

    `at` names another evaluation: a run with quality measured after its end cannot stop at the
    target, and converged where it first reached it.
    Epochs are rounded to three decimals, as the checker does: published factors need it. None
    also where the evaluation does not tell the unit.
    Source: MLPerf training_rules.adoc, "Reference Convergence Points"; mlperf-logging.
    """
    if run.status != "success" or not run.evaluations:
        return None
    last = run.evaluations[-1] if at is None else at
    if unit == "samples_count":
        return last.samples
    return None if last.epoch is None else round(last.epoch, EPOCH_DECIMALS)


def check_convergence(
    convergence: Sequence[float | None],
    *,
    batch_size: int,
    points: Sequence[ReferencePoint],
    runs: int,
    dropped: int,
    stdev_of: SpreadOf,
    pruned: bool,
    allowance: float = 0.0,
) -> RcpVerdict:
    """Whether a set of runs converges no faster than the reference points allow.

    `convergence` has the epochs (or samples) of every run of the set, in any order, None for one
    that did not converge: it counts as slower than all others. `runs` and `dropped` are the
    benchmark's. `pruned` leaves out the points that `prune` drops. `allowance` is how far below
    `lowest` a mean may still pass: the checker grants llama31_405b one evaluation interval.

    At a batch size between two points the mean and the spread are interpolated; above the largest
    the point is missing; below the smallest the set must pass the smallest's test, because a
    smaller batch may only converge in fewer epochs.
    Raises RuleError if there are no runs left after dropping or a figure is not a number above 0.
    """
    limits = convergence_limits(
        points, runs=runs, dropped=dropped, stdev_of=stdev_of, pruned=pruned
    )
    _refuse_impossible(convergence)
    if not limits:
        return RcpVerdict("missing", "no reference convergence points", 1.0)
    submission_mean = olympic_mean(convergence, dropped=dropped)
    if submission_mean is None:
        return RcpVerdict("fail", "too few runs converged", 1.0)
    limit = limit_at(batch_size, limits, runs=runs)
    if limit is not None:
        found = "RCP found" if limit in limits else "RCP interpolated"
        return _compare(submission_mean, limit, found, allowance)
    if batch_size < limits[0].batch_size:
        return _below_smallest(submission_mean, limits[0], batch_size, allowance)
    return RcpVerdict("missing", _missing(batch_size), 1.0, submission_mean=submission_mean)


def convergence_limits(
    points: Sequence[ReferencePoint],
    *,
    runs: int,
    dropped: int,
    stdev_of: SpreadOf,
    pruned: bool,
) -> list[ConvergenceLimit]:
    """The limit at every reference point, by batch size; with `pruned` at those that `prune` keeps.

    Raises RuleError if a point has too few runs, or two have the same batch size.
    """
    ordered = sorted(points, key=lambda point: point.batch_size)
    sizes = [point.batch_size for point in ordered]
    if len(set(sizes)) != len(sizes):
        raise RuleError(f"two reference points of one batch size among {sizes}")
    limits = [_limit_of(point, runs=runs, dropped=dropped, stdev_of=stdev_of) for point in ordered]
    return prune(limits) if pruned else limits


def prune(limits: Sequence[ConvergenceLimit]) -> list[ConvergenceLimit]:
    """The points, by batch size, without those that are slower than their neighbours promise.

    Points below the batch size of the fastest are dropped; then, once from small to large, each
    that converges slower than the line between its neighbours. That is the checker's reading and
    gives the published factors. The rule text says "any two surrounding points", which is the
    convex envelope: in v5.1 it keeps fewer points of llama2_70b_lora and dlrm_dcnv2.
    Source: MLPerf training_rules.adoc, "Reference Convergence Points"; mlperf-logging.
    """
    if not limits:
        return []
    fastest = min(limits, key=lambda point: point.mean)
    kept = [point for point in limits if point.batch_size >= fastest.batch_size]
    i = 1
    while i < len(kept) - 1:
        line, _ = interpolate(kept[i].batch_size, kept[i - 1], kept[i + 1])
        if kept[i].mean > line:
            del kept[i]
        else:
            i += 1
    return kept


def interpolate(
    batch_size: float, low: ConvergenceLimit, high: ConvergenceLimit
) -> tuple[float, float]:
    """Mean and standard deviation on the line between two points, at a batch size between them."""
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    return (
        low.mean + (high.mean - low.mean) * share,
        low.stdev + (high.stdev - low.stdev) * share,
    )


def limit_at(
    batch_size: int, limits: Sequence[ConvergenceLimit], *, runs: int
) -> ConvergenceLimit | None:
    """The limit at a batch size: a point's own or interpolated; None outside the points.

    `limits` are in the order of their batch sizes. An interpolated point counts as one of 2 N
    reference runs (the checker's reading).
    """
    sizes = [point.batch_size for point in limits]
    place = bisect.bisect_left(sizes, batch_size)
    if place < len(sizes) and sizes[place] == batch_size:
        return limits[place]
    if place in (0, len(sizes)):
        return None
    centre, stdev = interpolate(batch_size, limits[place - 1], limits[place])
    lowest = lowest_submission(centre, stdev, reference_runs=2 * runs, submission_runs=runs - 2)
    return ConvergenceLimit(batch_size, centre, stdev, lowest)


def lowest_submission(
    reference_mean: float, stdev: float, *, reference_runs: int, submission_runs: int
) -> float:
    """The least submission mean that is not significantly below the reference's.

    One-sided two-sample t-test, equal variances, p = 0.05, both sides with the reference's
    standard deviation: the closed form of the checker's bisection. Without variation nothing below
    the mean passes. Raises RuleError unless both sides have runs.
    """
    freedom = reference_runs + submission_runs - 2
    if reference_runs < 1 or submission_runs < 1 or freedom < 1:
        raise RuleError(
            f"a test of {submission_runs} against {count_text(reference_runs, 'run')}",
            expected="a benchmark of at least 3 runs and 2 reference runs for each",
        )
    reference = Reference(reference_mean, stdev, reference_runs)
    return lowest_mean(reference, weight=submission_runs, alpha=ALPHA, freedom=freedom)


@lru_cache(maxsize=256)
def _limit_of(
    point: ReferencePoint, *, runs: int, dropped: int, stdev_of: SpreadOf
) -> ConvergenceLimit:
    ordered = sorted(point.epochs)
    trimmed = ordered[dropped : len(ordered) - dropped]
    if not trimmed:
        raise RuleError(
            f"{count_text(len(ordered), 'run')} at batch size {point.batch_size}, "
            f"{dropped} to drop at each end",
            expected=f"at least {2 * runs} runs",
        )
    centre = mean(trimmed)
    stdev = standard_deviation(trimmed if stdev_of == "trimmed" else ordered, ddof=0)
    lowest = lowest_submission(centre, stdev, reference_runs=len(trimmed), submission_runs=runs - 2)
    return ConvergenceLimit(point.batch_size, centre, stdev, lowest)


def _compare(
    submission_mean: float, limit: ConvergenceLimit, found: str, allowance: float
) -> RcpVerdict:
    least = limit.lowest - allowance
    passed = submission_mean >= least - ROUNDING * abs(least)
    factor = max(1.0, limit.mean / submission_mean)
    if not passed:
        message = f"{found}: converges faster than the reference allows"
    elif factor > 1.0:
        message = f"{found}: faster than the reference mean but within the limit{NORMALISED}"
    else:
        message = found
    return RcpVerdict(
        verdict="pass" if passed else "fail",
        message=message,
        factor=factor,
        batch_size=limit.batch_size,
        mean=limit.mean,
        lowest=limit.lowest,
        submission_mean=submission_mean,
    )


def _below_smallest(
    submission_mean: float, smallest: ConvergenceLimit, batch_size: int, allowance: float
) -> RcpVerdict:
    found = f"RCP not found, held against the smallest batch size {smallest.batch_size}"
    compared = _compare(submission_mean, smallest, found, allowance)
    if compared.verdict == "pass":
        return compared
    return replace(compared, verdict="missing", message=_missing(batch_size))


def _missing(batch_size: int) -> str:
    return f"missing RCP: submit one for batch size {batch_size}"


def _refuse_impossible(convergence: Sequence[float | None]) -> None:
    for value in convergence:
        if value is not None and not (math.isfinite(value) and value > 0):
            raise RuleError(f"converged after {value:g}", expected="a number above 0")

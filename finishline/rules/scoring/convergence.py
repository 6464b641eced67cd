"""Compare a set's convergence with reference convergence points (RCP).

A closed submission may not reach the target in fewer epochs (or samples) than the reference needs
at its batch size. Where the rule text and its checker differ, the benchmark's file decides.
Source: MLPerf training_rules.adoc, "Reference Convergence Points" and mlperf-logging.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import (
    ConvergenceUnit,
    RcpRule,
    ReferencePoint,
    RunsRule,
    SpreadOf,
)
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.violations import Violation
from finishline.rules.statistics.aggregate import Reference, mean, olympic_mean, standard_deviation
from finishline.rules.statistics.gaps import lowest_mean
from finishline.rules.text import count_text

Verdict = Literal["pass", "fail", "missing", "published"]
FACTOR_COUNTS = ("pass", "published")
ALPHA = 0.05
EPOCH_DECIMALS = 3
NORMALISED = ", normalised"
NO_BATCH_SIZE = "no global_batch_size in the log"
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

    "fail" converges faster than the reference can, "missing" has no reference point, and
    "published" is one of these two with the factor of a `scaling.json`. `factor` is reference mean
    / submission mean, at least 1. `applied_factor` multiplies the score. `batch_size`, `mean` and
    `lowest` (the limit before any allowance) are of the used reference point. `submission_mean` is
    the olympic mean of the set, None where too few runs converged.
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
        return self.factor if self.verdict in FACTOR_COUNTS else 1.0

    @property
    def normalised(self) -> bool:
        """Whether the time of the set is raised because it converged faster than the mean."""
        return self.applied_factor > 1.0


def with_published_factor(verdict: RcpVerdict | None, factor: float | None) -> RcpVerdict | None:
    """Apply the factor of a set's scaling.json to the verdict, where it counts.

    It counts without a reference point, or where it raises a set that converged too fast to the
    mean. Source: MLPerf training_rules.adoc, "Normalize submission run epochs to reference epochs".
    """
    found = verdict or RcpVerdict("missing", "no reference convergence points", 1.0)
    if factor is None or found.verdict == "pass":
        return verdict
    if found.verdict == "fail":
        if found.mean is None or found.submission_mean is None:
            return verdict
        if factor * found.submission_mean < found.mean * (1 - ROUNDED_FACTOR):
            return verdict
    message = f"{found.message}, normalised by the factor of its scaling.json"
    return replace(found, verdict="published", message=message, factor=factor)


def convergence_of_run(
    run: Run, *, unit: ConvergenceUnit, at: Evaluation | None = None
) -> float | None:
    """Return the epochs (or samples) to the last evaluation of a successful run, else None.

    `at` names another evaluation, for runs with quality measured after their end. None also where
    the evaluation has no such count. Epochs are rounded to three decimals, as the checker does.
    """
    if run.status != "success" or not run.evaluations:
        return None
    last = run.evaluations[-1] if at is None else at
    if unit == "samples_count":
        return last.samples
    return None if last.epoch is None else round(last.epoch, EPOCH_DECIMALS)


def check_convergence(
    convergence: Sequence[float | None],
    batch_size: int,
    rule: RcpRule,
    runs: RunsRule,
    *,
    pruned: bool,
) -> RcpVerdict:
    """Check that a set of runs converges no faster than the reference points allow.

    `convergence` has the epochs (or samples) of every run of the set, None for a run that did not
    converge. `pruned` leaves out the points that `prune` drops.

    Between two points the mean and the spread are interpolated. Above the largest batch size the
    point is missing. Below the smallest the set must pass the smallest's test. Raises RuleError if
    dropping leaves no run, or a figure is not a number above 0.
    """
    limits = convergence_limits(rule, runs, pruned=pruned)
    for value in convergence:
        if value is not None and not (math.isfinite(value) and value > 0):
            raise RuleError(f"converged after {value:g}", expected="a number above 0")
    if not limits:
        return RcpVerdict("missing", "no reference convergence points", 1.0)
    submission_mean = olympic_mean(convergence, dropped=runs.dropped)
    if submission_mean is None:
        return RcpVerdict("fail", "too few runs converged", 1.0)
    limit = limit_at(batch_size, limits, runs=runs.count)
    if limit is not None:
        found = "RCP found" if limit in limits else "RCP interpolated"
        return _compare(submission_mean, limit, found, rule.allowance)
    missing = f"missing RCP: submit one for batch size {batch_size}"
    smallest = limits[0]
    if batch_size > smallest.batch_size:
        return RcpVerdict("missing", missing, 1.0, submission_mean=submission_mean)
    found = f"RCP not found, held against the smallest batch size {smallest.batch_size}"
    compared = _compare(submission_mean, smallest, found, rule.allowance)
    if compared.verdict == "pass":
        return compared
    return replace(compared, verdict="missing", message=missing)


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
    point = limit.batch_size, limit.mean, limit.lowest
    return RcpVerdict("pass" if passed else "fail", message, factor, *point, submission_mean)


def convergence_limits(rule: RcpRule, runs: RunsRule, *, pruned: bool) -> list[ConvergenceLimit]:
    """Return the limit at every reference point, by batch size, `pruned` by `prune`.

    Raises RuleError if a point has too few runs, or two have the same batch size.
    """
    ordered = sorted(rule.points, key=lambda point: point.batch_size)
    sizes = [point.batch_size for point in ordered]
    if len(set(sizes)) != len(sizes):
        raise RuleError(f"two reference points of one batch size among {sizes}")
    limits = [_limit_of(point, runs, rule.stdev_of) for point in ordered]
    return prune(limits) if pruned else limits


@lru_cache(maxsize=256)
def _limit_of(point: ReferencePoint, runs: RunsRule, stdev_of: SpreadOf) -> ConvergenceLimit:
    ordered = sorted(point.epochs)
    trimmed = ordered[runs.dropped : len(ordered) - runs.dropped]
    if not trimmed:
        few = f"{count_text(len(ordered), 'run')} at batch size {point.batch_size}"
        message = f"{few}, {runs.dropped} to drop at each end"
        raise RuleError(message, expected=f"at least {2 * runs.count} runs")
    centre = mean(trimmed)
    stdev = standard_deviation(trimmed if stdev_of == "trimmed" else ordered, ddof=0)
    kept = len(trimmed)
    lowest = lowest_submission(centre, stdev, reference_runs=kept, submission_runs=runs.count - 2)
    return ConvergenceLimit(point.batch_size, centre, stdev, lowest)


def prune(limits: Sequence[ConvergenceLimit]) -> list[ConvergenceLimit]:
    """Drop the points, by batch size, that are slower than their neighbours promise.

    Points below the batch size of the fastest are dropped. Then, once from small to large, each
    that converges slower than the line between its neighbours. The checker reads it so. The rule
    text says "any two surrounding points", which keeps fewer.
    """
    if not limits:
        return []
    fastest = min(limits, key=lambda point: point.mean)
    kept = [point for point in limits if point.batch_size >= fastest.batch_size]
    i = 1
    while i < len(kept) - 1:
        line, _ = _interpolate(kept[i].batch_size, kept[i - 1], kept[i + 1])
        if kept[i].mean > line:
            del kept[i]
        else:
            i += 1
    return kept


def _interpolate(
    batch_size: float, low: ConvergenceLimit, high: ConvergenceLimit
) -> tuple[float, float]:
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    centre = low.mean + (high.mean - low.mean) * share
    return centre, low.stdev + (high.stdev - low.stdev) * share


def limit_at(
    batch_size: int, limits: Sequence[ConvergenceLimit], *, runs: int
) -> ConvergenceLimit | None:
    """Return the limit at a batch size: a point's own or interpolated. None outside the points.

    An interpolated point counts among 2 N reference runs (the checker's reading).
    """
    sizes = [point.batch_size for point in limits]
    place = bisect.bisect_left(sizes, batch_size)
    if place < len(sizes) and sizes[place] == batch_size:
        return limits[place]
    if place in (0, len(sizes)):
        return None
    centre, stdev = _interpolate(batch_size, limits[place - 1], limits[place])
    lowest = lowest_submission(centre, stdev, reference_runs=2 * runs, submission_runs=runs - 2)
    return ConvergenceLimit(batch_size, centre, stdev, lowest)


def lowest_submission(
    reference_mean: float, stdev: float, *, reference_runs: int, submission_runs: int
) -> float:
    """Return the least submission mean that is not significantly below the reference's.

    One-sided two-sample t-test, equal variances, p = 0.05, both sides with the reference's
    deviation: the closed form of the checker's bisection. Raises RuleError unless both have runs.
    """
    freedom = reference_runs + submission_runs - 2
    if reference_runs < 1 or submission_runs < 1 or freedom < 1:
        message = f"a test of {submission_runs} against {count_text(reference_runs, 'run')}"
        expected = "a benchmark of at least 3 runs and 2 reference runs for each"
        raise RuleError(message, expected=expected)
    reference = Reference(reference_mean, stdev, reference_runs)
    return lowest_mean(reference, weight=submission_runs, alpha=ALPHA, freedom=freedom)


def check_set(
    runs: Sequence[Run],
    convergence: Sequence[float | None],
    benchmark: Benchmark,
    *,
    division: str,
    pruned: bool,
) -> tuple[RcpVerdict | None, list[Violation]]:
    """Compare the convergence of a result's runs with the reference. Return verdict and violations.

    `convergence` has one figure for each of `runs`. The verdict is None in the open division,
    without reference points, for too few runs, and for several batch sizes. It is "missing" if no
    log has a batch size. The log of a failed run may end before it.
    """
    rule = benchmark.rcp
    if rule is None or division != "closed" or len(runs) <= 2 * benchmark.runs.dropped:
        return None, []
    sizes = {
        run.batch_size
        for run, figure in zip(runs, convergence, strict=True)
        if figure is not None or run.batch_size is not None
    }
    if not sizes:
        return None, []
    batch_size = next(iter(sizes))
    if len(sizes) > 1 or batch_size is None:
        missing = RcpVerdict("missing", NO_BATCH_SIZE, 1.0) if sizes == {None} else None
        return missing, [_batch_size_violation(runs, convergence)]
    try:
        counts = [_as_points_count(figure, rule) for figure in convergence]
        verdict = check_convergence(counts, batch_size, rule, benchmark.runs, pruned=pruned)
    except RuleError as error:
        field, expected = benchmark.convergence_unit, error.expected
        return None, [Violation("bad_value", error.message, field=field, expected=expected)]
    if not rule.normalise:
        verdict = replace(verdict, factor=1.0, message=verdict.message.removesuffix(NORMALISED))
    return verdict, _violations(verdict, runs, convergence, benchmark.convergence_unit)


def _as_points_count(figure: float | None, rule: RcpRule) -> float | None:
    """Convert a figure to the unit of the points: epochs if points are at most twice as many."""
    if figure is None or rule.samples_per_epoch is None:
        return figure
    samples = figure * rule.samples_per_epoch
    slowest = max(max(point.epochs) for point in rule.points)
    return samples if samples <= 2 * slowest else figure


def _violations(
    verdict: RcpVerdict,
    runs: Sequence[Run],
    convergence: Sequence[float | None],
    unit: ConvergenceUnit,
) -> list[Violation]:
    message = f"the run reached the target, but its last evaluation has no {unit}"
    expected = f"{unit} with every evaluation"
    name = "samples" if unit == "samples_count" else "epoch"
    silent = [
        Violation("no_convergence", message, run.name, f"metadata.{unit}", expected)
        for run, figure in zip(runs, convergence, strict=True)
        if figure is None and run.status == "success" and run.evaluations
        if getattr(run.evaluations[-1], name) is None
    ]
    code = {"fail": "converges_too_fast", "missing": "missing_rcp"}.get(verdict.verdict)
    if silent or code is None or verdict.submission_mean is None:
        return silent
    limit = "" if verdict.lowest is None else f", at least {verdict.lowest:g} {unit}"
    message = f"{verdict.message}: mean of {verdict.submission_mean:g} {unit}"
    expected = f"convergence as the reference model's{limit}"
    return [Violation(code, message, field=unit, expected=expected)]


def _batch_size_violation(runs: Sequence[Run], convergence: Sequence[float | None]) -> Violation:
    first = next((run for run in runs if run.batch_size is not None), runs[0])
    figures = zip(runs, convergence, strict=True)
    other = next((r for r, figure in figures if figure is not None and r.batch_size is None), None)
    message = f"{NO_BATCH_SIZE}: the set is not compared with the reference's convergence"
    if other is None:
        other = next(run for run in runs if run.batch_size not in (None, first.batch_size))
        message = f"batch size {other.batch_size}, and {first.batch_size} in {first.name}"
    expected = "one batch size, logged in every run"
    return Violation("batch_size_differs", message, other.name, "global_batch_size", expected)

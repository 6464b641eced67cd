"""The convergence of a whole set: its verdict, the rules it breaks, the points to draw."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import RcpRule, ReferencePoint
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.convergence import (
    NORMALISED,
    ConvergenceLimit,
    RcpVerdict,
    check_convergence,
    convergence_limits,
    limit_at,
    prune,
)
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.scoring.violations import Violation

NO_BATCH_SIZE = "no global_batch_size in the log"


def check_set(
    runs: Sequence[Run],
    convergence: Sequence[float | None],
    benchmark: Benchmark,
    *,
    division: str,
    pruned: bool,
) -> tuple[RcpVerdict | None, list[Violation]]:
    """Compare the convergence of a result's runs with the reference; return verdict and violations.

    `convergence` has one figure for each of `runs`. The verdict is None in the open division, for
    a benchmark without reference points, for too few runs, and where the runs do not agree on one
    batch size. It is "missing" where no log has one, as for the published checker. The log of a run
    that did not converge may have ended before it.
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
    if sizes == {None}:
        return RcpVerdict("missing", NO_BATCH_SIZE, 1.0), [_batch_size_violation(runs, convergence)]
    if len(sizes) > 1 or batch_size is None:
        return None, [_batch_size_violation(runs, convergence)]
    try:
        verdict = check_convergence(
            [_as_points_count(figure, rule) for figure in convergence],
            batch_size=batch_size,
            points=rule.points,
            runs=benchmark.runs.count,
            dropped=benchmark.runs.dropped,
            stdev_of=rule.stdev_of,
            pruned=pruned,
            allowance=rule.allowance,
        )
    except RuleError as error:
        field, expected = benchmark.convergence_unit, error.expected
        return None, [Violation("bad_value", error.message, field=field, expected=expected)]
    if not rule.normalise:
        verdict = replace(verdict, factor=1.0, message=verdict.message.removesuffix(NORMALISED))
    return verdict, _violations(verdict, runs, convergence, benchmark)


def _as_points_count(figure: float | None, rule: RcpRule) -> float | None:
    """A figure in the unit of the points: epochs are told by points of at most twice as many."""
    if figure is None or rule.samples_per_epoch is None:
        return figure
    samples = figure * rule.samples_per_epoch
    slowest = max(max(point.epochs) for point in rule.points)
    return samples if samples <= 2 * slowest else figure


def _violations(
    verdict: RcpVerdict,
    runs: Sequence[Run],
    convergence: Sequence[float | None],
    benchmark: Benchmark,
) -> list[Violation]:
    unit = benchmark.convergence_unit
    silent = [
        Violation(
            "no_convergence",
            f"the run reached the target, but its last evaluation has no {unit}",
            file=run.name,
            field=f"metadata.{unit}",
            expected=f"{unit} with every evaluation",
        )
        for run, figure in zip(runs, convergence, strict=True)
        if figure is None and run.status == "success" and _last_is_silent(run, unit)
    ]
    code = {"fail": "converges_too_fast", "missing": "missing_rcp"}.get(verdict.verdict)
    if silent or code is None or verdict.submission_mean is None:
        return silent
    limit = "" if verdict.lowest is None else f", at least {verdict.lowest:g} {unit}"
    return [
        Violation(
            code,
            f"{verdict.message}: mean of {verdict.submission_mean:g} {unit}",
            field=unit,
            expected=f"convergence as the reference model's{limit}",
        )
    ]


def _last_is_silent(run: Run, unit: str) -> bool:
    if not run.evaluations:
        return False
    last = run.evaluations[-1]
    return (last.samples if unit == "samples_count" else last.epoch) is None


def _batch_size_violation(runs: Sequence[Run], convergence: Sequence[float | None]) -> Violation:
    first = runs[0]
    for run, figure in zip(runs, convergence, strict=True):
        if figure is not None and run.batch_size is None:
            other = run
            message = f"{NO_BATCH_SIZE}: the set is not compared with the reference's convergence"
            break
    else:
        other = next(run for run in runs if run.batch_size not in (None, first.batch_size))
        message = f"batch size {other.batch_size}, and {first.batch_size} in {first.name}"
    return Violation(
        "batch_size_differs",
        message,
        file=other.name,
        field="global_batch_size",
        expected="one batch size, logged in every run",
    )


STEPS_BETWEEN_POINTS = 12


@dataclass(frozen=True)
class ReferenceCurve:
    """Limits by batch size: at every point, at those pruning keeps, and between the kept ones.

    `judged` is whether submissions must reach `lowest`, less `allowance`; if not, ignore it.
    """

    judged: bool
    allowance: float
    points: tuple[ConvergenceLimit, ...]
    kept: tuple[ConvergenceLimit, ...]
    envelope: tuple[ConvergenceLimit, ...]


def reference_curve(benchmark: Benchmark) -> ReferenceCurve:
    """Convergence of the reference at each batch size; without points if unknown."""
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

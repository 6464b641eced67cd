"""The convergence of a whole set: its verdict, and the rules it breaks."""

from collections.abc import Sequence

from rules.benchmark import Benchmark
from rules.convergence import RcpVerdict, check_convergence
from rules.run import Run
from rules.violations import Violation


def check_set(
    runs: Sequence[Run],
    convergence: Sequence[float | None],
    benchmark: Benchmark,
    *,
    division: str,
    pruned: bool,
) -> tuple[RcpVerdict | None, list[Violation]]:
    """How the runs of a result converge against the reference, and what they break by it.

    `convergence` has one figure for each of `runs`. The verdict is None in the open division, for
    a benchmark without reference points, for too few runs, and where the runs do not agree on one
    batch size; the log of a run that did not converge may have ended before it told.
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
        return None, [_batch_size_violation(runs)]
    verdict = check_convergence(
        convergence,
        batch_size=batch_size,
        points=rule.points,
        runs=benchmark.runs.count,
        dropped=benchmark.runs.dropped,
        stdev_of=rule.stdev_of,
        pruned=pruned,
        allowance=rule.allowance,
    )
    return verdict, _violations(verdict, runs, convergence, benchmark)


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


def _batch_size_violation(runs: Sequence[Run]) -> Violation:
    first = runs[0]
    other = next((run for run in runs if run.batch_size != first.batch_size), first)
    return Violation(
        "batch_size_differs",
        f"batch size {other.batch_size}, and {first.batch_size} in {first.name}",
        file=other.name,
        field="global_batch_size",
        expected="one batch size, logged in every run",
    )

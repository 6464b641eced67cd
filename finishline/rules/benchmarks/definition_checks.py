"""Checks that a definition must pass before it opens for submissions.

A later check belongs here: results were published under definitions that it would refuse, and
those are read again without it (`benchmark.read_benchmark`).
"""

import re
from typing import TYPE_CHECKING

from finishline.rules.benchmarks.quality import UNITS, QualityTarget
from finishline.rules.errors import BenchmarkError

if TYPE_CHECKING:
    from finishline.rules.benchmarks.benchmark import Benchmark


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # It names files and folders.
LONGEST_SECONDS = 30 * 86_400.0
MAX_RUNS = 100  # Logs of a submission.
MOST_ITEMS = 10**15  # Of a data set; a million times the largest one of an archive.
# References that train in several precisions have it as their own; of one in half precision no list
# is given.
OWN_PRECISION = "fp32"


def check_offered(benchmark: "Benchmark", *, file: str) -> None:
    """Refuse a definition that makes no sense. Raises BenchmarkError naming file and field."""
    if not _ID.fullmatch(benchmark.benchmark_id):
        found, expected = repr(benchmark.benchmark_id[:80]), "letters, digits, _, . and -"
        raise BenchmarkError(f"got {found}", file=file, field="id", expected=expected)
    for number, also in enumerate(benchmark.target.also):
        _check_target(also, file=file, field=f"target.also[{number}]")
    _check_target(benchmark.target, file=file, field="target")
    _check_direction(benchmark, file=file)
    _check_trainings(benchmark, file=file)
    _check_limits(benchmark, file=file)
    _check_precisions(benchmark, file=file)
    _check_counts(benchmark, file=file)


def _check_counts(benchmark: "Benchmark", *, file: str) -> None:
    """Refuse more runs than a submission may have, and more items than any data set has."""
    runs, data_set = benchmark.runs, benchmark.data_set
    for field, found, most in (
        ("runs.count", runs.count, MAX_RUNS),
        ("runs.started", runs.started or 0, MAX_RUNS),
        ("data_set.train_items", data_set.train_items or 0, MOST_ITEMS),
        ("data_set.test_items", data_set.test_items or 0, MOST_ITEMS),
    ):
        if found > most:
            raise BenchmarkError(f"{found}", file=file, field=field, expected=f"at most {most:,}")


def _check_precisions(benchmark: "Benchmark", *, file: str) -> None:
    """Refuse a list in another order: a reference is not told its own precision, the first."""
    offered = () if benchmark.replay is None else benchmark.replay.precisions
    if offered and offered[0] != OWN_PRECISION:
        raise BenchmarkError(
            f"{offered[0]} comes first",
            file=file,
            field="replay.precisions",
            expected=f"{OWN_PRECISION} first, which the reference trains in by itself",
        )


def _check_limits(benchmark: "Benchmark", *, file: str) -> None:
    """Refuse limits that no calendar holds: a lease of 1e300 seconds has no end to store."""
    for name in ("replay", "trainings"):
        policy = getattr(benchmark, name)
        for field in ("run_limit_seconds", "lease_seconds"):
            if policy is not None and getattr(policy, field) > LONGEST_SECONDS:
                raise BenchmarkError(
                    f"{getattr(policy, field):g}",
                    file=file,
                    field=f"{name}.{field}",
                    expected=f"at most {LONGEST_SECONDS:g} seconds",
                )


def _check_trainings(benchmark: "Benchmark", *, file: str) -> None:
    """Packages are timed by a clock that never pauses, to the first crossing, in one division."""
    if benchmark.trainings is None:
        return
    for field, found, needed in (
        ("clock", benchmark.clock.name, "mlperf"),
        ("target.reach", benchmark.reach.name, "first_crossing"),
    ):
        if found != needed:
            raise BenchmarkError(
                f"{found!r} with [trainings]", file=file, field=field, expected=f"{needed!r}"
            )
    if "open" not in benchmark.divisions:
        raise BenchmarkError(
            "no open division with [trainings]",
            file=file,
            field="divisions",
            expected="open among them: packages are ranked there",
        )


def _check_target(target: QualityTarget, *, file: str, field: str) -> None:
    scale = UNITS[target.unit]
    if scale is not None:
        _check_scale(target, scale, file=file, field=f"{field}.value")
    if target.is_beyond_floor(target.value):
        raise BenchmarkError(
            f"{target.floor:g}, but the target is {target.value:g}",
            file=file,
            field=f"{field}.floor",
            expected="the best possible quality, at least as good as the target",
        )


def _check_scale(target: QualityTarget, scale: float, *, file: str, field: str) -> None:
    """Refuse a share that no run has, and one that was written in the other unit."""
    if not 0 <= target.value <= scale:
        expected = f"0 to {scale:g}, or another unit"
    elif target.unit == "percent" and target.direction == "higher" and target.value <= 1:
        expected = f"{100 * target.value:g}, or the unit fraction"
    else:
        return
    found = f"{target.value:g} {target.unit}"
    raise BenchmarkError(found, file=file, field=field, expected=expected)


def _check_direction(benchmark: "Benchmark", *, file: str) -> None:
    """Refuse a target that every calibrated run is at before it has learned anything."""
    runs, target = benchmark.reference_runs, benchmark.target
    if benchmark.reach.name == "fixed_stop" or not any(len(run.quality) > 1 for run in runs):
        return
    if all(target.is_reached(quality) for run in runs for quality in run.quality[:1]):
        raise BenchmarkError(
            f"every reference run reaches {target.in_words} at its first evaluation",
            file=file,
            field="target.direction",
            expected="the direction of improvement, and a target that takes training",
        )

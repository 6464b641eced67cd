"""Effect of precision: epochs and seconds to the target of a reference, beside its own precision.

Calibrations in several precisions train the same reference at the same batch size, each run with a
seed of its own, so their figures compare as independent samples.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.calibrated_runs import as_evaluations
from finishline.rules.scoring.aggregate import Interval, mean, standard_deviation
from finishline.rules.scoring.tta import find_crossing
from finishline.rules.statistics.comparison import compare
from finishline.rules.statistics.significance import t_quantile

FEWEST_FOR_INTERVAL = 3
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PrecisionRun:
    """One calibrated run to its last epoch: quality and seconds after each epoch.

    The runs of a benchmark's file have no `hardware_class` and no `seconds`.
    """

    precision: str
    batch_size: int
    quality: tuple[float, ...]
    seconds: tuple[float, ...] = ()
    hardware_class: str | None = None


@dataclass(frozen=True)
class Amount:
    """Mean of a figure over runs that reached the target, and its ratio to the base's.

    `interval` is Student's for the mean, of three runs or more. `ratio` is of geometric means: None
    for the base itself, and without runs of the base. Both intervals are of 95 %.
    """

    mean: float
    interval: Interval | None
    ratio: float | None
    ratio_interval: Interval | None


@dataclass(frozen=True)
class PrecisionEffect:
    """A precision at a batch size on a hardware class: `reached` of its `runs` reached the target.

    Epochs are compared with all base runs at the batch size, wherever they were trained; seconds
    with those of the same hardware class. `seconds` is None for runs of a benchmark's file.
    """

    batch_size: int
    hardware_class: str | None
    precision: str
    runs: int
    reached: int
    epochs: Amount | None
    seconds: Amount | None


@dataclass(frozen=True)
class _Crossing:
    run: PrecisionRun
    epochs: float
    seconds: float | None


def precision_effects(
    benchmark: Benchmark, runs: Iterable[PrecisionRun], *, base: str
) -> list[PrecisionEffect]:
    """The effect of each precision, by batch size and hardware class, the base first.

    Source: Student's t for a mean; Welch (1947) on logarithms for a ratio.
    """
    known = list(runs)
    crossings = [found for run in known if (found := _crossing(benchmark, run)) is not None]
    order = {name: place for place, name in enumerate(_precisions(benchmark, known, base))}
    groups = {(run.batch_size, run.hardware_class, run.precision) for run in known}
    return [
        _effect(group, known, crossings, base=base)
        for group in sorted(groups, key=lambda g: (g[0], g[1] or "", order[g[2]]))
    ]


def _precisions(benchmark: Benchmark, runs: Sequence[PrecisionRun], base: str) -> list[str]:
    offered = () if benchmark.replay is None else benchmark.replay.precisions
    return list(dict.fromkeys([base, *offered, *sorted({run.precision for run in runs})]))


def _crossing(benchmark: Benchmark, run: PrecisionRun) -> _Crossing | None:
    found = find_crossing(as_evaluations(run.quality), benchmark.target, benchmark.reach)
    if found is None or found.epoch is None:
        return None
    place = int(found.epoch) - 1
    return _Crossing(run, found.epoch, run.seconds[place] if place < len(run.seconds) else None)


def _effect(
    group: tuple[int, str | None, str],
    runs: Sequence[PrecisionRun],
    crossings: Sequence[_Crossing],
    *,
    base: str,
) -> PrecisionEffect:
    batch_size, hardware_class, precision = group
    at_size = [each for each in crossings if each.run.batch_size == batch_size]
    in_class = [each for each in at_size if each.run.hardware_class == hardware_class]
    own = [each for each in in_class if each.run.precision == precision]
    beside = [] if precision == base else [each for each in at_size if each.run.precision == base]
    seconds = [each.seconds for each in own if each.seconds is not None]
    base_seconds = [
        each.seconds for each in beside if each in in_class and each.seconds is not None
    ]
    return PrecisionEffect(
        batch_size=batch_size,
        hardware_class=hardware_class,
        precision=precision,
        runs=sum((r.batch_size, r.hardware_class, r.precision) == group for r in runs),
        reached=len(own),
        epochs=_amount([each.epochs for each in own], [each.epochs for each in beside]),
        seconds=_amount(seconds, base_seconds),
    )


def _amount(values: Sequence[float], base: Sequence[float]) -> Amount | None:
    if not values:
        return None
    against = compare(values, base)
    return Amount(mean(values), _interval(values), against.ratio, against.ratio_interval)


def _interval(values: Sequence[float]) -> Interval | None:
    if len(values) < FEWEST_FOR_INTERVAL:
        return None
    error = standard_deviation(values, ddof=1) / math.sqrt(len(values))
    half = t_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * error
    return Interval(low=mean(values) - half, high=mean(values) + half)

"""Advice on a benchmark whose reference was tried: design faults that let luck or noise rank.

Source of the figures: docs/own-benchmark.md, "How large, how late, how many".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.trainings.halves import judge_halves

FEWEST_ITEMS = 4_000
FEWEST_RUNS = 5
MOST_ASKS = 6
LARGEST_SHARE = 0.25
SHORTEST_SECONDS = 1.0


@dataclass(frozen=True)
class ReferenceRuns:
    """Runs of a reference that reached the target.

    Times are in seconds: to the target, and on evaluations. `halves` are the qualities at it.
    """

    seconds: Sequence[float]
    evaluation_seconds: Sequence[float]
    asks: Sequence[int]
    halves: Sequence[tuple[float, float]]

    @property
    def mean_seconds(self) -> float:
        """Mean time to the target."""
        return fmean(self.seconds)

    @property
    def cv_percent(self) -> float | None:
        """Standard deviation over mean of the times, None for one run."""
        return 100 * stdev(self.seconds) / self.mean_seconds if len(self.seconds) > 1 else None

    @property
    def evaluation_share(self) -> float:
        """Share of the time that evaluations took, 0 to 1."""
        return sum(self.evaluation_seconds) / sum(self.seconds)

    @property
    def mean_halves(self) -> tuple[float, float]:
        """Mean quality on the first half and on the second."""
        first, second = zip(*self.halves, strict=True)
        return fmean(first), fmean(second)

    def figures(self) -> dict[str, float | None]:
        """The figures for programs."""
        first, second = self.mean_halves
        return {
            "mean_seconds": self.mean_seconds,
            "cv_percent": self.cv_percent,
            "evaluation_percent": 100 * self.evaluation_share,
            "first_half": first,
            "second_half": second,
        }


def advice(benchmark: Benchmark, runs: ReferenceRuns, *, prediction_items: int) -> Iterator[str]:
    """Sentences on what to change before the benchmark ranks anybody."""
    policy = benchmark.trainings
    if policy is None:
        return
    items = prediction_items // 2 if policy.halves else prediction_items
    if not policy.halves and policy.trust == "ranked":
        yield "halves is false: the items that stop the clock also judge, so luck counts. Draw two."
    if items < FEWEST_ITEMS:
        yield (
            f"{items:,} test items a half: 0.2 points below the target, 4.6 % of entries pass by "
            "luck in 5 runs on 2,000 items, 0.9 % on 4,000. Draw at least 4,000."
        )
    if policy.runs < FEWEST_RUNS:
        yield f"{policy.runs} runs of an entry: with fewer than {FEWEST_RUNS} luck decides."
    if runs.evaluation_share > LARGEST_SHARE:
        yield (
            f"Evaluations take {100 * runs.evaluation_share:.0f} % of the reference's time: a "
            f"faster training gains little; at most {100 * LARGEST_SHARE:.0f} %. Ask less often."
        )
    if max(runs.asks) > MOST_ASKS:
        yield (
            f"The reference asks {max(runs.asks)} times; at most {MOST_ASKS}, late: each ask near "
            "the target is another chance of luck, which the second half then does not confirm."
        )
    if runs.mean_seconds < SHORTEST_SECONDS:
        yield (
            f"The reference needs {runs.mean_seconds:.2f} s; below {SHORTEST_SECONDS:g} s the "
            "machine's noise ranks. Raise the target or the size."
        )
    target = benchmark.target
    verdict = judge_halves(
        [second for _, second in runs.halves], target=target.value, direction=target.direction
    )
    if verdict.outcome != "confirmed":
        yield (
            f"The mean of the second half, {verdict.mean:.2f}, misses the target by "
            f"{verdict.missing:.2f}: such an entry is not measured. Ask later or lower the target."
        )

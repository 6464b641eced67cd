"""Compare two verifications of one submission: differences, and whether they exceed chance."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.aggregate import mean
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, ReplayRun


@dataclass(frozen=True)
class ReplayFigures:
    """One replay in one line: seconds and epochs to the target, None if it did not reach it."""

    index: int
    seed: int
    status: str
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None


@dataclass(frozen=True)
class Difference:
    """A figure's means in both verifications, the first over the second, and how likely by chance.

    `p_value` is two-sided, from Welch's t-test on logarithms; None below two replays on each side.
    `comparable` is false for times on different hardware classes.
    """

    figure: str
    first_mean: float | None
    second_mean: float | None
    ratio: float | None
    p_value: float | None
    comparable: bool


@dataclass(frozen=True)
class SystemDifference:
    """A line in which the systems of two replays differ."""

    field: str
    first: str | None
    second: str | None


def figures_of(benchmark: Benchmark, report: ReplayReport) -> list[ReplayFigures]:
    """Figures of each replay of a report."""
    return [_figures(benchmark, run) for run in report.runs]


def _figures(benchmark: Benchmark, run: ReplayRun) -> ReplayFigures:
    reached = evaluation_at_target(benchmark, run)
    qualities = [item.quality for item in run.evaluations]
    best = max if benchmark.target.direction == "higher" else min
    return ReplayFigures(
        index=run.index,
        seed=run.seed,
        status=run.status,
        tta_seconds=run.tta_seconds if reached is not None else None,
        epochs_to_target=reached.epoch if reached is not None else None,
        best_quality=best(qualities, default=None),
    )


def compare_replays(
    benchmark: Benchmark, first: ReplayReport, second: ReplayReport
) -> list[Difference]:
    """Times and epochs to the target of two reports, over the replays that reached it."""
    same_class = first.system.hardware_class == second.system.hardware_class
    sides = [figures_of(benchmark, report) for report in (first, second)]
    found = []
    for figure, comparable in (("tta_seconds", same_class), ("epochs_to_target", True)):
        values = [[getattr(run, figure) for run in side] for side in sides]
        left, right = ([value for value in side if value is not None] for side in values)
        first_mean, second_mean = (mean(side) if side else None for side in (left, right))
        ratio = first_mean / second_mean if first_mean is not None and second_mean else None
        p_value = two_sided_p(left, right) if comparable else None
        found.append(Difference(figure, first_mean, second_mean, ratio, p_value, comparable))
    return found


def compare_systems(first: ReplayReport, second: ReplayReport) -> list[SystemDifference]:
    """Hardware, threads and package versions in which two workers differ."""
    left, right = _flat(first), _flat(second)
    return [
        SystemDifference(field, left.get(field), right.get(field))
        for field in sorted({*left, *right})
        if left.get(field) != right.get(field)
    ]


def _flat(report: ReplayReport) -> Mapping[str, str]:
    table = asdict(report.system)
    software = table.pop("software")
    table["nodes"] = ", ".join(node["name"] for node in table["nodes"]) or None
    flat = {name: str(value) for name, value in table.items() if value is not None}
    return flat | {f"software.{name}": str(value) for name, value in software.items()}

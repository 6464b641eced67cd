"""From runs to a result, with every step kept so that the score explains itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules.aggregate import (
    coefficient_of_variation_percent,
    interval_of_mean,
    mean,
    median_window,
    olympic_mean,
)
from rules.benchmark import Benchmark
from rules.clock import Clock
from rules.cost import training_cost_usd
from rules.run import Run
from rules.tta import (
    display_seconds,
    evaluation_interval_seconds,
    first_evaluation_at_target,
    time_to_accuracy,
)
from rules.violations import Violation, best_quality, find_violations


@dataclass(frozen=True)
class Step:
    """One step of a score: the formula in words, the numbers that went in, the value it gave."""

    name: str
    formula: str
    numbers: dict[str, float | None]
    value: float | None
    unit: str


@dataclass(frozen=True)
class RunScore:
    """What one run comes to. Times in seconds on the benchmark's clock."""

    file: str
    seed: int | None
    reached: bool
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float
    evaluation_interval_seconds: float | None


@dataclass(frozen=True)
class Result:
    """What `score` derives. `tta_seconds` is None if the set did not reach the target."""

    benchmark_sha256: str
    clock: str
    runs: tuple[RunScore, ...]
    started: int
    reached: int
    tta_seconds: float | None
    tta_display: str | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    cv_percent: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    best_quality: float
    evaluation_interval_seconds: float | None
    violations: tuple[Violation, ...]
    steps: tuple[Step, ...] = field(default=())

    @property
    def eligible(self) -> bool:
        """Whether the result may be ranked at all."""
        return not self.violations


def score(
    runs: Sequence[Run],
    benchmark: Benchmark,
    *,
    division: str,
    price_usd_per_hour: float | None,
    clock: Clock | None = None,
) -> Result:
    """The result of a set of at least one run under a benchmark's rules.

    Raises RuleError if a run has no evaluations.
    """
    clock = clock or benchmark.clock
    scores = tuple(score_run(run, benchmark, division=division, clock=clock) for run in runs)
    times = [run.tta_seconds for run in scores]
    converged = [seconds for seconds in times if seconds is not None]
    violations = tuple(find_violations(runs, benchmark, division=division))
    count, dropped = benchmark.runs.count, benchmark.runs.dropped
    scored = times[median_window(times, count=count, dropped=dropped)]
    tta = olympic_mean(scored, dropped=dropped) if len(scored) > 2 * dropped else None
    interval = interval_of_mean(converged)
    epochs = [run.epochs_to_target for run in scores if run.epochs_to_target is not None]
    intervals = [
        run.evaluation_interval_seconds
        for run in scores
        if run.evaluation_interval_seconds is not None
    ]
    cost = training_cost_usd(tta, price_usd_per_hour)
    cv = coefficient_of_variation_percent(converged)
    return Result(
        benchmark_sha256=benchmark.sha256,
        clock=clock.name,
        runs=scores,
        started=len(scores),
        reached=len(converged),
        tta_seconds=tta,
        tta_display=None if tta is None else display_seconds(tta),
        tta_low_seconds=interval.low if interval else None,
        tta_high_seconds=interval.high if interval else None,
        cv_percent=cv,
        epochs_to_target=mean(epochs) if epochs else None,
        cost_usd=cost,
        best_quality=best_quality([e for run in runs for e in run.evaluations], benchmark),
        evaluation_interval_seconds=max(intervals) if intervals else None,
        violations=violations,
        steps=_steps(scores, benchmark, clock, tta, cv, price_usd_per_hour, cost),
    )


def score_run(run: Run, benchmark: Benchmark, *, division: str, clock: Clock) -> RunScore:
    """One run's time and epochs to the target."""
    target, reach = benchmark.target, benchmark.reach
    reached = first_evaluation_at_target(run.evaluations, target, reach)
    tta = time_to_accuracy(run, target, reach, clock=clock, division=division)
    return RunScore(
        file=run.name,
        seed=run.seed,
        reached=tta is not None,
        tta_seconds=tta,
        epochs_to_target=reached.epoch if reached and tta is not None else None,
        best_quality=best_quality(run.evaluations, benchmark),
        evaluation_interval_seconds=evaluation_interval_seconds(run),
    )


def _steps(
    scores: Sequence[RunScore],
    benchmark: Benchmark,
    clock: Clock,
    tta: float | None,
    cv: float | None,
    price: float | None,
    cost: float | None,
) -> tuple[Step, ...]:
    target, dropped = benchmark.target, benchmark.runs.dropped
    sign = ">=" if target.direction == "higher" else "<="
    times = {run.file: run.tta_seconds for run in scores}
    count = min(len(scores), benchmark.runs.count)
    kept = count - 2 * dropped
    steps = [
        Step(
            name=f"TTA of {run.file}",
            formula=f"seconds on the {clock.name} clock to the first evaluation with "
            f"{target.metric} {sign} {target.value:g} {target.unit}",
            numbers={"best quality": run.best_quality, "epoch": run.epochs_to_target},
            value=run.tta_seconds,
            unit="s",
        )
        for run in scores
    ]
    formula = _mean_in_words(kept=kept, dropped=dropped)
    if len(scores) > count:
        formula = f"of {count} runs in a row, where that is the median: {formula}"
    steps.append(Step("TTA", formula, times, tta, "s"))
    steps.append(
        Step(
            "coefficient of variation",
            "population standard deviation / mean x 100 over all runs that reached the target",
            times,
            cv,
            "%",
        )
    )
    steps.append(
        Step(
            "cost to accuracy",
            "TTA / 3600 x price per hour",
            {"TTA (s)": tta, "price (USD/h)": price},
            cost,
            "USD",
        )
    )
    return tuple(steps)


def _mean_in_words(*, kept: int, dropped: int) -> str:
    if dropped == 0:
        return "mean of all runs"
    left = "the run" if kept == 1 else f"the mean of the {kept} runs"
    ends = "the fastest and the slowest" if dropped == 1 else f"the {dropped} fastest and slowest"
    return f"{left} left after dropping {ends}"

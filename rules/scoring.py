"""From runs to a result, with every step kept so that the score explains itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules.aggregate import (
    coefficient_of_variation_percent,
    interval_of_mean,
    mean,
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


@dataclass(frozen=True)
class Violation:
    """A rule the runs break, with the log it was found in; the result is then not ranked."""

    code: str
    message: str
    file: str | None = None
    field: str | None = None
    expected: str | None = None


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
    violations = tuple(find_violations(runs, scores, benchmark))
    dropped = benchmark.runs.dropped
    tta = olympic_mean(times, dropped=dropped) if len(times) > 2 * dropped else None
    interval = interval_of_mean(converged)
    epochs = [run.epochs_to_target for run in scores if run.epochs_to_target is not None]
    intervals = [
        run.evaluation_interval_seconds
        for run in scores
        if run.evaluation_interval_seconds is not None
    ]
    cost = training_cost_usd(tta, price_usd_per_hour)
    cv = coefficient_of_variation_percent(converged)
    best = scores[0].best_quality
    for run in scores[1:]:
        best = benchmark.target.better(best, run.best_quality)
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
        best_quality=best,
        evaluation_interval_seconds=max(intervals) if intervals else None,
        violations=violations,
        steps=_steps(scores, benchmark, clock, tta, cv, price_usd_per_hour, cost),
    )


def score_run(run: Run, benchmark: Benchmark, *, division: str, clock: Clock) -> RunScore:
    """One run's time and epochs to the target."""
    target, reach = benchmark.target, benchmark.reach
    reached = first_evaluation_at_target(run.evaluations, target, reach)
    tta = time_to_accuracy(run, target, reach, clock=clock, division=division)
    best = run.evaluations[0].quality
    for evaluation in run.evaluations[1:]:
        best = target.better(best, evaluation.quality)
    return RunScore(
        file=run.name,
        seed=run.seed,
        reached=tta is not None,
        tta_seconds=tta,
        epochs_to_target=reached.epoch if reached and tta is not None else None,
        best_quality=best,
        evaluation_interval_seconds=evaluation_interval_seconds(run),
    )


def find_violations(
    runs: Sequence[Run], scores: Sequence[RunScore], benchmark: Benchmark
) -> list[Violation]:
    """The rules a set of runs breaks.

    Source: MLPerf training_rules.adoc, "Run Results" and "Random numbers".
    """
    violations = []
    wanted = benchmark.runs.count
    if len(runs) < wanted:
        violations.append(
            Violation(
                "too_few_runs",
                f"{len(runs)} runs",
                field="runs",
                expected=f"{wanted} runs of {benchmark.benchmark_id}",
            )
        )
    by_seed: dict[int, str] = {}
    for run, score_of_run in zip(runs, scores, strict=True):
        if run.seed is not None and run.seed in by_seed:
            violations.append(
                Violation(
                    "same_seed",
                    f"seed {run.seed} is also the seed of {by_seed[run.seed]}",
                    file=run.name,
                    field="seed",
                    expected="a seed of its own for every run",
                )
            )
        elif run.seed is not None:
            by_seed[run.seed] = run.name
        if run.status == "success" and not score_of_run.reached:
            violations.append(
                Violation(
                    "success_without_target",
                    f"run_stop says success, but the best quality is {score_of_run.best_quality:g}",
                    file=run.name,
                    field="run_stop",
                    expected=f"{benchmark.target.metric} of {benchmark.target.value:g} reached",
                )
            )
    return violations


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
    kept = len(scores) - 2 * dropped
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
    formula = (
        f"mean of the {kept} runs left after dropping the {dropped} fastest and {dropped} slowest"
        if dropped
        else "mean of all runs"
    )
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

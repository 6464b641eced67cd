"""The rules a set of runs can break; a result of such runs is not ranked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ConvergenceUnit
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.statistics.aggregate import mean
from finishline.rules.statistics.gaps import p_value_of_mean_beyond
from finishline.rules.text import count_text

FIXED_STOP_P_VALUE = 0.01


@dataclass(frozen=True)
class Violation:
    """A rule the runs break, with the log and line it shows in; the result is then not ranked."""

    code: str
    message: str
    file: str | None = None
    field: str | None = None
    expected: str | None = None
    line: int | None = None


def find_violations(
    runs: Sequence[Run], benchmark: Benchmark, *, division: str, archive: bool = False
) -> list[Violation]:
    """Rules that a set of runs breaks, on any clock. Runs of an `archive` need not log a seed.

    Source: MLPerf training_rules.adoc, "Run Results" and "Random numbers".
    """
    violations = []
    wanted = benchmark.runs.wanted
    if len(runs) < wanted:
        violations.append(
            Violation(
                "too_few_runs",
                count_text(len(runs), "run"),
                field="runs",
                expected=f"{count_text(wanted, 'run')} of {benchmark.benchmark_id}",
            )
        )
    needed = division == "closed" and benchmark.runs.count > 1 and not archive
    if needed and benchmark.runs.seeds == "required":
        violations += find_seedless(runs)
    violations += find_repeated_seeds(runs, benchmark)[0]
    if not any(run.evaluations for run in runs):
        violations += [_unevaluated(run, benchmark) for run in runs]
    for run in runs:
        if run.status == "success" and not _reaches_target(run, benchmark):
            violations.append(
                Violation(
                    "success_without_target",
                    f"run_stop says success, but {_best_in_words(run, benchmark)}",
                    file=run.name,
                    field="run_stop",
                    expected=f"{_target_in_words(benchmark)} reached",
                )
            )
    violations += _below_entropy(runs, benchmark)
    if benchmark.reach.name == "fixed_stop":
        violations += _fixed_stop_violations(runs, benchmark)
    return violations


MOST_SEEDS_OF_A_RUN = 5
# Two runs of self-play differ even with one seed: the published seed checker leaves MiniGo out.
SEEDS_MAY_REPEAT = ("minigo",)
ANOTHER_SEED = "a different seed for every run"


def find_seedless(runs: Sequence[Run]) -> list[Violation]:
    """The runs without a seed in their logs."""
    return [
        Violation("no_seed", "no seed in the log", run.name, "seed", ANOTHER_SEED)
        for run in runs
        if not _seeds_of(run)
    ]


def find_repeated_seeds(
    runs: Sequence[Run], benchmark: Benchmark
) -> tuple[list[Violation], list[Violation]]:
    """Seeds of a run that an earlier one has too: those that break a rule, and those that do not.

    Where every rank logs a seed of its own and nothing was asked of them, some are alike by chance;
    a run that has no other seeds than those repeats a run.
    """
    found: tuple[list[Violation], list[Violation]] = [], []
    free = any(run.benchmark in SEEDS_MAY_REPEAT for run in runs)
    by_seed: dict[int, str] = {}
    for run in runs:
        seeds = _seeds_of(run)
        repeated = [seed for seed in seeds if seed in by_seed]
        by_chance = benchmark.runs.seeds == "if_logged" and len(repeated) < len(seeds)
        for seed in repeated[:MOST_SEEDS_OF_A_RUN]:
            message = f"seed {seed} is also the seed of {by_seed[seed]}"
            violation = Violation("same_seed", message, run.name, "seed", ANOTHER_SEED)
            found[by_chance or free].append(violation)
        for seed in seeds:
            by_seed.setdefault(seed, run.name.rpartition("/")[2])
    return found


def _seeds_of(run: Run) -> tuple[int, ...]:
    return run.seeds or (() if run.seed is None else (run.seed,))


def _unevaluated(run: Run, benchmark: Benchmark) -> Violation:
    return Violation(
        "no_evaluation",
        "no evaluation in the log: the run did not converge",
        file=run.name,
        field="evaluations",
        expected=f"an evaluation with {benchmark.target.in_words}",
    )


def _below_entropy(runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """The first evaluation of each run that is better than the data allows: it is made up."""
    target = benchmark.target
    if target.floor is None:
        return []
    return [
        Violation(
            "below_entropy",
            f"{target.metric} {impossible.quality:g} at epoch {impossible.epoch}",
            file=run.name,
            field="quality",
            expected=f"nothing beyond {target.floor:g}, the known bound of the data",
        )
        for run in runs
        if (impossible := first_beyond_floor(run.evaluations, benchmark)) is not None
    ]


def first_beyond_floor(
    evaluations: Sequence[Evaluation], benchmark: Benchmark
) -> Evaluation | None:
    """The first evaluation that is better than the data allows, None where none is."""
    return next((e for e in evaluations if benchmark.target.is_beyond_floor(e.quality)), None)


def find_gone_back(run: Run, *, unit: ConvergenceUnit) -> Violation | None:
    """The last evaluation, if it came after fewer epochs (or samples) than one before it.

    The convergence of a run rests on its last evaluation.
    """
    counts = [e.samples if unit == "samples_count" else e.epoch for e in run.evaluations]
    last = counts[-1] if counts else None
    if last is None:
        return None
    highest = max(count or 0 for count in counts)
    if highest <= last:
        return None
    name = "samples" if unit == "samples_count" else "epoch"
    return Violation(
        "epochs_go_back",
        f"{name} {last:g} at the end, after {highest:g}",
        file=run.name,
        line=run.evaluations[-1].line,
        field=unit,
        expected="the log of one run, whose last evaluation is the furthest",
    )


def _reaches_target(run: Run, benchmark: Benchmark) -> bool:
    if not run.evaluations:
        return False
    target, reach = benchmark.target, benchmark.reach
    return first_evaluation_at_target(run.evaluations, target, reach) is not None


def _target_in_words(benchmark: Benchmark) -> str:
    target = benchmark.target
    if target.value == -math.inf:
        return "any quality"
    return " and ".join(f"{part.metric} of {part.value:g}" for part in (target, *target.also))


def _best_in_words(run: Run, benchmark: Benchmark) -> str:
    if not run.evaluations:
        return "nothing was evaluated"
    return f"the best quality is {best_quality(run.evaluations, benchmark):g}"


def _fixed_stop_violations(runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """All runs stop at the same step, where their mean quality must beat the target.

    Source: modded-nanogpt, rules of the speedrun (one-sided t-test, p < 0.01).
    """
    target = benchmark.target
    last = [run.evaluations[-1] for run in runs if run.evaluations]
    if len(last) < len(runs):
        expected = "an evaluation of every run at the step where all stop"
        return [Violation("target_not_proven", "a run without evaluations", expected=expected)]
    violations = [
        Violation(
            "different_stop",
            f"stopped at epoch {item.epoch}, samples {item.samples}",
            file=run.name,
            expected=f"epoch {last[0].epoch}, samples {last[0].samples} as in {runs[0].name}",
        )
        for run, item in zip(runs, last, strict=True)
        if (item.epoch, item.samples) != (last[0].epoch, last[0].samples)
    ]
    qualities = [item.quality for item in last]
    p_value = p_value_of_mean_beyond(qualities, target.value, direction=target.direction)
    if p_value is None or p_value >= FIXED_STOP_P_VALUE:
        shown = "none, of a single run" if p_value is None else f"{p_value:.3g}"
        violations.append(
            Violation(
                "target_not_proven",
                f"mean {target.metric} {mean(qualities):g} over {count_text(len(runs), 'run')}, "
                f"p-value {shown}",
                field="runs",
                expected=f"a mean beyond {target.value:g} with p < {FIXED_STOP_P_VALUE:g}",
            )
        )
    return violations


def best_quality(evaluations: Sequence[Evaluation], benchmark: Benchmark) -> float:
    """The best quality of at least one evaluation."""
    return benchmark.target.best(evaluation.quality for evaluation in evaluations)

"""Find the rules that a set of runs breaks, and name the waivable rules."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """A rule the runs break, with its log and line. The result is then unranked."""

    code: str
    message: str
    file: str | None = None
    field: str | None = None
    expected: str | None = None
    line: int | None = None


def find_violations(
    runs: Sequence[Run], benchmark: Benchmark, *, division: str, archive: bool = False
) -> list[Violation]:
    """Find the rules that a set of runs breaks, on any clock. An `archive` may omit seeds.

    Source: MLPerf training_rules.adoc, "Run Results" and "Random numbers".
    """
    violations = []
    wanted, target = benchmark.runs.wanted, benchmark.target
    if len(runs) < wanted:
        expected = f"{count_text(wanted, 'run')} of {benchmark.benchmark_id}"
        message = count_text(len(runs), "run")
        violations.append(Violation("too_few_runs", message, field="runs", expected=expected))
    if benchmark.runs.most is not None and len(runs) > benchmark.runs.most:
        expected, message = f"{benchmark.runs.in_words} runs", count_text(len(runs), "run")
        violations.append(Violation("too_many_runs", message, field="runs", expected=expected))
    needed = division == "closed" and benchmark.runs.count > 1 and not archive
    if needed and benchmark.runs.seeds == "required":
        violations += find_seedless(runs)
    violations += find_repeated_seeds(runs, benchmark)[0]
    if not any(run.evaluations for run in runs):
        message = "no evaluation in the log: the run did not converge"
        expected = f"an evaluation with {target.in_words}"
        violations += [
            Violation("no_evaluation", message, run.name, "evaluations", expected) for run in runs
        ]
    violations += _without_score(runs, benchmark)
    parts = " and ".join(f"{part.metric} of {part.value:g}" for part in (target, *target.also))
    expected = f"{'any quality' if target.value == -math.inf else parts} reached"
    at_quality = benchmark.reach.budget_seconds is None
    for run in (each for each in runs if each.status == "success" and at_quality):
        found, best = None, "nothing was evaluated"
        if run.evaluations:
            found = first_evaluation_at_target(run.evaluations, target, benchmark.reach)
            best = f"the best quality is {best_quality(run.evaluations, benchmark):g}"
        if found is None:
            message = f"run_stop says success, but {best}"
            violations.append(
                Violation("success_without_target", message, run.name, "run_stop", expected)
            )
    for run in runs:
        impossible = first_beyond_floor(run.evaluations, benchmark)
        if impossible is not None:  # It is made up.
            message = f"{target.metric} {impossible.quality:g} at epoch {impossible.epoch}"
            expected = f"nothing beyond {target.floor:g}, the known bound of the data"
            violations.append(Violation("below_entropy", message, run.name, "quality", expected))
    if benchmark.reach.name == "fixed_stop":
        violations += _fixed_stop_violations(runs, benchmark)
    return violations


def _without_score(runs: Sequence[Run], benchmark: Benchmark) -> Iterator[Violation]:
    budget, target = benchmark.reach.budget_seconds, benchmark.target
    for run in runs:
        if budget is None or not run.evaluations:
            continue
        if first_evaluation_at_target(run.evaluations, target, benchmark.reach) is None:
            first = run.evaluations[0]
            message = f"the first evaluation of {run.name} ended after {first.seconds:.4g} s"
            expected = f"an evaluation within the budget of {budget:g} s"
            yield Violation("over_budget", message, run.name, "evaluations", expected, first.line)


MOST_SEEDS_OF_A_RUN = 5
# Two runs of self-play differ even with one seed: the published seed checker leaves MiniGo out.
SEEDS_MAY_REPEAT = ("minigo",)
ANOTHER_SEED = "a different seed for every run"


def find_seedless(runs: Sequence[Run]) -> list[Violation]:
    silent = [run.name for run in runs if not _seeds_of(run)]
    return [Violation("no_seed", "no seed in the log", r, "seed", ANOTHER_SEED) for r in silent]


def find_repeated_seeds(
    runs: Sequence[Run], benchmark: Benchmark
) -> tuple[list[Violation], list[Violation]]:
    """Find seeds of an earlier run: forbidden ones, and ones that many ranks share by chance."""
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


def first_beyond_floor(
    evaluations: Sequence[Evaluation], benchmark: Benchmark
) -> Evaluation | None:
    """Return the first evaluation that is better than the data allows."""
    return next((e for e in evaluations if benchmark.target.is_beyond_floor(e.quality)), None)


def find_gone_back(run: Run, *, unit: ConvergenceUnit) -> Violation | None:
    """Find a last evaluation that came after fewer epochs (or samples) than one before it."""
    counts = [e.samples if unit == "samples_count" else e.epoch for e in run.evaluations]
    last = counts[-1] if counts else None
    if last is None:
        return None
    highest = max(count or 0 for count in counts)
    if highest <= last:
        return None
    name, line = "samples" if unit == "samples_count" else "epoch", run.evaluations[-1].line
    message = f"{name} {last:g} at the end, after {highest:g}"
    expected = "the log of one run, whose last evaluation is the furthest"
    return Violation("epochs_go_back", message, run.name, unit, expected, line)


def _fixed_stop_violations(runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Require that all runs stop at the same step, where their mean quality must beat the target.

    Where a range begins with one run, only the mean decides, because one run has no p-value.
    Source: modded-nanogpt, rules of the speedrun (one-sided t-test, p < 0.01).
    """
    target = benchmark.target
    last = [run.evaluations[-1] for run in runs if run.evaluations]
    if len(last) < len(runs):
        expected = "an evaluation of every run at the step where all stop"
        return [Violation("target_not_proven", "a run without evaluations", expected=expected)]
    first = last[0]
    expected = f"{_stop_words(first, benchmark)} as in {runs[0].name}"
    violations = []
    for run, item in zip(runs, last, strict=True):
        if (item.epoch, item.samples) != (first.epoch, first.samples):
            message = f"stopped at {_stop_words(item, benchmark)}"
            violations.append(Violation("different_stop", message, run.name, expected=expected))
    qualities = [item.quality for item in last]
    message = f"mean {target.metric} {mean(qualities):g} over {count_text(len(runs), 'run')}"
    if benchmark.runs.count == 1 and benchmark.runs.most is not None:
        if not target.is_reached(mean(qualities)):
            expected = f"a mean of {target.in_words}"
            violations.append(Violation("target_missed", message, field="runs", expected=expected))
        return violations
    p_value = p_value_of_mean_beyond(qualities, target.value, direction=target.direction)
    if p_value is None or p_value >= FIXED_STOP_P_VALUE:
        shown = "none, of a single run" if p_value is None else f"{p_value:.3g}"
        expected = f"a mean beyond {target.value:g} with p < {FIXED_STOP_P_VALUE:g}"
        proof = f"{message}, p-value {shown}"
        violations.append(Violation("target_not_proven", proof, field="runs", expected=expected))
    return violations


def _stop_words(at: Evaluation, benchmark: Benchmark) -> str:
    if benchmark.convergence_unit == "steps" and at.epoch is not None:
        return f"step {at.epoch:.0f}"
    return f"epoch {at.epoch}, samples {at.samples}"


def best_quality(evaluations: Sequence[Evaluation], benchmark: Benchmark) -> float:
    return benchmark.target.best(evaluation.quality for evaluation in evaluations)


# Rules on how a result is shown. Rules on whether it is true are never waived: a copied log, an
# impossible quality, a success without the target, a log that contradicts its claim.
WaivableRule = Literal[
    "too_few_runs",
    "no_seed",
    "no_convergence",
    "batch_size_differs",
    "missing_rcp",
    "converges_too_fast",
    "preparation_missing",
]
WAIVABLE: dict[WaivableRule, str] = {
    "too_few_runs": "fewer runs than the benchmark asks for",
    "no_seed": "a log without its seed",
    "no_convergence": "a log that does not tell how far the run had trained",
    "batch_size_differs": "runs without one batch size that all of them log",
    "missing_rcp": "no reference convergence points to judge it by",
    "converges_too_fast": "convergence faster than the reference points allow",
    "preparation_missing": "a log without the start of its preparation",
}

"""Score runs into a result, with every step kept so that the score explains itself."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from finishline.rules.benchmarks.benchmark import MLPERF_ID, Benchmark
from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Run
from finishline.rules.scoring.convergence import (
    RcpVerdict,
    check_set,
    convergence_of_run,
    with_published_factor,
)
from finishline.rules.scoring.tta import (
    calibrated_spread,
    claimed_interval,
    display_seconds,
    evaluation_interval_seconds,
    first_evaluation_at_target,
    on_clock,
    time_to_accuracy,
)
from finishline.rules.scoring.violations import Violation, best_quality, find_violations
from finishline.rules.statistics.aggregate import (
    coefficient_of_variation_percent,
    dropped_at_each_end,
    mean,
    measured_seconds,
    median_window,
    olympic_mean,
    standard_deviation,
)
from finishline.rules.statistics.gaps import p_value_of_mean_beyond
from finishline.rules.text import count_text

COST_STEP = "cost to accuracy"
OF_CV = "Population standard deviation / mean × 100 over all runs that reached the target"
MOST_ADDENDS = 10


@dataclass(frozen=True)
class Step:
    """One step of a score: the formula in words, its numbers, and the resulting value.

    `working` is the formula with its numbers in it. Of a single run it says how its time counts.
    """

    name: str
    formula: str
    numbers: dict[str, float | None]
    value: float | None
    unit: str
    working: str | None = None


@dataclass(frozen=True)
class RunScore:
    """Score of one run. Times in seconds on the benchmark's clock.

    `convergence` is the count for RCPs, if the run succeeded and reached the target. `best_quality`
    is None for a run that ended before its first evaluation. With a budget it is the quality of the
    last evaluation within it.
    """

    file: str
    seed: int | None
    reached: bool
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    convergence: float | None = None


@dataclass(frozen=True)
class AtStop:
    """Runs that all stop at one step: their number, means and standard deviations.

    `p_value` is one-sided: how likely is a mean this far beyond the target if the true mean is at
    the target? The deviations and `p_value` are None for one run.
    """

    runs: int
    step: float | None
    mean_seconds: float
    sd_seconds: float | None
    mean_quality: float
    sd_quality: float | None
    p_value: float | None


@dataclass(frozen=True)
class Result:
    """Result of `score`. `tta_seconds` is None if the set did not reach the target.

    `raw_tta_seconds` is the olympic mean as measured. `tta_seconds` and its interval are multiplied
    by the factor of `rcp`, which is None without a convergence check. `best_quality` is the best of
    all runs, or with a budget the mean of their qualities within it. `at_stop` is None unless all
    runs stop at one step.
    """

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
    best_quality: float | None
    evaluation_interval_seconds: float | None
    violations: tuple[Violation, ...]
    steps: tuple[Step, ...] = field(default=())
    raw_tta_seconds: float | None = None
    rcp: RcpVerdict | None = None
    at_stop: AtStop | None = None

    @property
    def eligible(self) -> bool:
        return not self.violations


def score(
    runs: Sequence[Run],
    benchmark: Benchmark,
    *,
    division: str,
    price_usd_per_hour: float | None,
    clock: Clock | None = None,
    pruned: bool = True,
    with_interval: bool = True,
    archive: bool = False,
    scaling_factor: float | None = None,
) -> Result:
    """Score a set of at least one run under a benchmark's rules.

    `pruned` compares convergence with the pruned reference points, as MLPerf does. `with_interval`
    adds an interval to the time. `scaling_factor` is published by an `archive` with a set. It
    counts where the reference points give none. Raises RuleError without a run.
    """
    clock = clock or benchmark.clock
    if not runs:
        raise RuleError("no runs", expected="at least one run")
    if benchmark.reach.budget_seconds is not None:
        runs = [on_clock(run, clock, division=division) for run in runs]
    scores = tuple(score_run(run, benchmark, division=division, clock=clock) for run in runs)
    times = [run.tta_seconds for run in scores]
    converged = [seconds for seconds in times if seconds is not None]
    places = scored_places(times, benchmark.runs)
    dropped = benchmark.runs.dropped
    scored = [times[place] for place in places]
    raw = olympic_mean(scored, dropped=dropped) if len(scored) > 2 * dropped else None
    kept, figures = [runs[place] for place in places], [scores[p].convergence for p in places]
    rcp, rcp_violations = check_set(kept, figures, benchmark, division=division, pruned=pruned)
    rcp = with_published_factor(rcp, scaling_factor)
    if rcp is not None and rcp.verdict == "published" and rcp.normalised:
        taken = ("missing_rcp", "converges_too_fast")  # By the review that scaled the set.
        rcp_violations = [each for each in rcp_violations if each.code not in taken]
    factor = 1.0 if rcp is None else rcp.applied_factor
    tta = None if raw is None else raw * factor
    epochs = [run.epochs_to_target for run in scores if run.epochs_to_target is not None]
    gaps = [run.evaluation_interval_seconds for run in scores]
    step = max((gap for gap in gaps if gap is not None), default=None)
    interval = None
    if with_interval:
        spread = calibrated_spread(benchmark)
        interval = claimed_interval(
            tta,
            runs=len(places),
            dropped=dropped,
            spread=spread,
            times=converged,
            step_seconds=step,
        )
    broken = find_violations(runs, benchmark, division=division, archive=archive)
    cost = training_cost_usd(tta, price_usd_per_hour)
    seconds_of = {run.file: run.tta_seconds for run in scores}
    priced = {"TTA (s)": tta, "price (USD/h)": price_usd_per_hour}
    cv = coefficient_of_variation_percent(converged)
    quality = _quality_of_set(scores, benchmark)
    by_quality = benchmark.score.by == "quality"
    timed = (
        *_tta_steps(scores, places, benchmark, raw, rcp, tta),
        Step("coefficient of variation", OF_CV, seconds_of, cv, "%", _spread(converged, cv)),
        Step(
            COST_STEP,
            "TTA / 3600 × price per hour",
            priced,
            cost,
            "USD",
            None if cost is None else f"{_plain(tta)} / 3600 × {_plain(price_usd_per_hour)}",
        ),
    )
    formulas = (_run_formula(run, benchmark, clock) for run in runs)
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
        best_quality=quality,
        evaluation_interval_seconds=step,
        violations=(*broken, *rcp_violations),
        steps=(
            *map(_run_step, scores, formulas, _uses(scores, benchmark.runs, benchmark)),
            *((_quality_step(scores, benchmark, quality),) if by_quality else timed),
        ),
        raw_tta_seconds=raw,
        rcp=rcp,
        at_stop=_at_stop(runs, times, benchmark),
    )


def _at_stop(
    runs: Sequence[Run], times: Sequence[float | None], benchmark: Benchmark
) -> AtStop | None:
    last = [run.evaluations[-1] for run in runs if run.evaluations]
    seconds = [time for time in times if time is not None]
    steps = {(each.epoch, each.samples) for each in last}
    if benchmark.reach.name != "fixed_stop" or len(seconds) < len(runs) or len(steps) != 1:
        return None
    target, qualities = benchmark.target, [each.quality for each in last]
    several = len(runs) > 1
    return AtStop(
        runs=len(runs),
        step=last[0].epoch,
        mean_seconds=mean(seconds),
        sd_seconds=standard_deviation(seconds, ddof=1) if several else None,
        mean_quality=mean(qualities),
        sd_quality=standard_deviation(qualities, ddof=1) if several else None,
        p_value=p_value_of_mean_beyond(qualities, target.value, direction=target.direction),
    )


def _quality_of_set(scores: Sequence[RunScore], benchmark: Benchmark) -> float | None:
    found = [run.best_quality for run in scores if run.best_quality is not None]
    if not found:
        return None
    return mean(found) if benchmark.score.by == "quality" else benchmark.target.best(found)


def scored_places(times: Sequence[float | None], rule: RunsRule) -> list[int]:
    """Return the places of the runs that make the result. A time of None did not converge.

    All of a range. Of more runs than the rule counts, the median window. Where a rule has more runs
    started than counted, the first that converged, and zero if they are too few (v0.5, "Run 100,
    use first 50 that converge"). Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    places = list(range(len(times)))
    if rule.most is not None:
        return places
    if rule.started is None:
        return places[median_window(times, count=rule.count, dropped=rule.dropped)]
    converged = [place for place in places if times[place] is not None]
    return converged[: rule.count] if len(converged) >= rule.count else []


def score_run(run: Run, benchmark: Benchmark, *, division: str, clock: Clock) -> RunScore:
    """Score one run's time and epochs to the target.

    In a round of MLPerf a run without run_stop, or from v0.6 on without its status, did not
    converge (training_rules.adoc, "Benchmark results").
    """
    if not run.evaluations:
        return RunScore(run.name, run.seed, False, None, None, None, None)
    target, reach = benchmark.target, benchmark.reach
    reached = first_evaluation_at_target(run.evaluations, target, reach)
    quality: float | None = best_quality(run.evaluations, benchmark)
    if reach.budget_seconds is not None:
        quality = None if reached is None else reached.quality
    of_round = MLPERF_ID.fullmatch(benchmark.benchmark_id)
    is_over = of_round is None or (
        run.stop_seconds is not None
        and (run.status is not None or of_round.groups()[:2] == ("0", "5"))
    )
    tta = convergence = epoch = None
    if is_over:
        tta = time_to_accuracy(run, target, reach, clock=clock, division=division)
    if tta is not None:
        at, unit = reached if target.offline else None, benchmark.convergence_unit
        convergence = convergence_of_run(run, unit=unit, at=at)
        epoch = reached.epoch if reached else None
    return RunScore(
        file=run.name,
        seed=run.seed,
        reached=tta is not None,
        tta_seconds=tta,
        epochs_to_target=epoch,
        best_quality=quality,
        evaluation_interval_seconds=evaluation_interval_seconds(run),
        convergence=convergence,
    )


def measured_steps(runs: Sequence[RunScore], benchmark: Benchmark) -> tuple[Step, ...]:
    """Explain the olympic mean of measured times, or with a budget the mean of their quality."""
    times = {run.file: run.tta_seconds for run in runs}
    rule = RunsRule(len(runs), dropped_at_each_end(len(runs)))
    end = "the first evaluation at the target"
    words, found = _mean([*times.values()], rule.dropped), measured_seconds([*times.values()])
    total = Step("TTA", _mean_formula(len(runs), rule), times, found, "s", words)
    if benchmark.score.by == "quality":
        end = _budget_words(benchmark)
        found = benchmark.score.measured([run.best_quality for run in runs])
        total = _quality_step(runs, benchmark, found)
    ended = (f"Seconds on the worker's stopwatch to {end}" for _ in runs)
    uses = _uses(runs, rule, benchmark)
    return (*map(_run_step, runs, ended, uses), total)


def _uses(runs: Sequence[RunScore], rule: RunsRule, benchmark: Benchmark) -> list[str]:
    if benchmark.score.by == "quality":
        return ["counts" if run.reached else "counts as the worst" for run in runs]
    return run_uses([run.tta_seconds for run in runs], rule)


def _run_step(run: RunScore, formula: str, use: str) -> Step:
    numbers = {"best quality": run.best_quality, "epoch": run.epochs_to_target}
    return Step(f"TTA of {run.file}", formula, numbers, run.tta_seconds, "s", use)


def _run_formula(run: Run, benchmark: Benchmark, clock: Clock) -> str:
    end = f"the first evaluation with {benchmark.target.in_words}"
    if benchmark.reach.budget_seconds is not None:
        end = _budget_words(benchmark)
    elif run.stop_seconds is not None and run.clock == clock.name:
        end = f"the end (run_stop) of a run that reached {benchmark.target.in_words}"
    return f"Seconds on the {clock.name} clock to {end}"


def _budget_words(benchmark: Benchmark) -> str:
    return f"the last evaluation within {benchmark.reach.budget_seconds:g} s"


def _quality_step(runs: Sequence[RunScore], benchmark: Benchmark, found: float | None) -> Step:
    named = {run.file: run.best_quality for run in runs}
    formula = f"The mean of all runs within {benchmark.reach.budget_seconds:g} s"
    return Step("quality", formula, named, found, "")


def run_uses(times: Sequence[float | None], rule: RunsRule) -> list[str]:
    """Say how the time of each run counts, in words. An untimed run counts as slowest."""
    places, dropped = scored_places(times, rule), rule.dropped
    ordered = sorted(places, key=lambda place: _slowest(times[place]))
    words = dict.fromkeys(ordered, "counts" if len(places) > 2 * dropped else "not counted")
    if len(places) > 2 * dropped:
        words |= dict.fromkeys(ordered[:dropped], "dropped as fastest")
        words |= dict.fromkeys(ordered[len(ordered) - dropped :], "dropped as slowest")
    return [words.get(place, "not counted") for place in range(len(times))]


def _slowest(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _tta_steps(
    scores: Sequence[RunScore],
    places: Sequence[int],
    benchmark: Benchmark,
    raw: float | None,
    rcp: RcpVerdict | None,
    tta: float | None,
) -> Iterator[Step]:
    dropped = benchmark.runs.dropped
    times = {run.file: run.tta_seconds for run in scores}
    formula, unit = _mean_formula(len(scores), benchmark.runs), benchmark.convergence_unit
    counted = _mean([scores[place].tta_seconds for place in places], dropped)
    if rcp is None:
        yield Step("TTA", formula, times, tta, "s", counted)
        return
    yield Step("raw TTA", formula, times, raw, "s", counted)
    convergence, mean_of = {run.file: run.convergence for run in scores}, rcp.submission_mean
    counted = None
    if mean_of is not None:
        counted = _mean([scores[place].convergence for place in places], dropped)
    yield Step("convergence", f"{formula}, in {unit}", convergence, mean_of, unit, counted)
    numbers = {
        "submission mean": mean_of,
        "reference mean": rcp.mean,
        "least mean": rcp.lowest,
        "batch size": rcp.batch_size,
    }
    formula = f"Reference mean / submission mean, at least 1, within the limit only: {rcp.message}"
    factor = rcp.applied_factor
    yield Step("normalisation", formula, numbers, factor, "", _quotient(rcp, factor))
    product = None if raw is None else f"{_plain(raw)} × {_plain(factor)}"
    yield Step("TTA", "Raw TTA × normalisation", {"raw TTA (s)": raw}, tta, "s", product)


def _mean(values: Sequence[float | None], dropped: int) -> str | None:
    """Write out the mean of the values left after dropping, of many values only their sum."""
    kept = sorted(map(_slowest, values))[dropped : len(values) - dropped]
    if not kept or math.inf in kept:
        return None
    if len(kept) == 1:
        return _plain(kept[0])
    if len(kept) > MOST_ADDENDS:
        return f"{_plain(sum(kept))} / {len(kept)}"
    return f"({' + '.join(map(_plain, kept))}) / {len(kept)}"


def _quotient(rcp: RcpVerdict, factor: float) -> str | None:
    if not rcp.mean or not rcp.submission_mean:
        return None
    left, quotient = (
        f"{_plain(rcp.mean)} / {_plain(rcp.submission_mean)}",
        rcp.mean / rcp.submission_mean,
    )
    return left if math.isclose(quotient, factor) else f"{left} is {quotient:.4g}; factor"


def _spread(times: Sequence[float], cv: float | None) -> str | None:
    if cv is None:
        return None
    middle = mean(times)
    return f"{_plain(cv * middle / 100)} / {_plain(middle)} × 100"


def _plain(value: float | None) -> str:
    """Write a figure with six digits, and millions in full."""
    figure = 0.0 if value is None else value
    return f"{figure:.0f}" if 1e6 <= figure < 1e15 else f"{figure:.6g}"


def _mean_formula(runs: int, rule: RunsRule) -> str:
    count = rule.counted(runs)
    kept = count - 2 * rule.dropped
    left = "the run" if kept == 1 else f"the mean of the {kept} runs"
    few = rule.dropped == 1
    ends = (
        "the fastest and the slowest"
        if few
        else f"the {rule.dropped} fastest and the {rule.dropped} slowest"
    )
    formula = f"{left} left after dropping {ends}" if rule.dropped else "the mean of all runs"
    if rule.started is not None:
        formula = f"of the first {count_text(rule.count, 'run')} that reached the target: {formula}"
    elif runs > count:
        formula = f"of {count_text(count, 'run')} in a row, where that is the median: {formula}"
    return formula[:1].upper() + formula[1:]

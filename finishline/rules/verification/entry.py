"""Measure code: its time from drawn data and seeds, and the effect of each of its factors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS, measured_seconds
from finishline.rules.statistics.gaps import Gap, HalvesOutcome, judge_halves, paired_gap
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.job import (
    Case,
    Purpose,
    Request,
    Words,
    data_nonce,
    draw,
    package_side,
    plan_in_turn,
    trainings_of,
)
from finishline.rules.verification.judge_convergence import evaluation_at_target, goal_words
from finishline.rules.verification.messages import PACKAGE_PREFIX, ReplayReport, ReplayRun, Training
from finishline.rules.verification.replay import is_excused, note_disturbed, open_unless_timed
from finishline.rules.verification.verdict import Reason, ReasonCode, Verdict, Weight

HALVES: dict[HalvesOutcome, tuple[ReasonCode, Weight]] = {
    "confirmed": ("second_half_agrees", "supports"),
    "short": ("second_half_short", "leaves_open"),
    "disagrees": ("second_half_disagrees", "rejects"),
}


def plan_entry(request: Request) -> list[Training]:
    """Plan the benchmark's runs, then its shortcut test, then a repeat of deterministic code."""
    policy, claim = request.benchmark.trainings, request.claims[0]
    if policy is None or claim.package is None:
        raise ValueError(
            "an entry is planned for a code submission and a benchmark that trains them"
        )
    has_control = policy.control_quality is not None
    drawn = draw(request.entropy, runs=policy.runs + has_control)
    planned = trainings_of(drawn, PACKAGE_PREFIX + claim.package, {})
    if has_control:
        planned[-1] = replace(planned[-1], measure=("control",))
    planned = [
        replace(each, data_nonce=data_nonce(request.entropy, index).hex())
        for index, each in enumerate(planned)
    ]
    if claim.deterministic:
        planned.append(replace(planned[0], measure=("repeat",)))
    return planned


def judge_entry(case: Case) -> Verdict:
    """Judge code: its runs reached the target, and the second half confirms them."""
    benchmark, made = case.benchmark, [run for run in case.report.runs if not is_excused(run)]
    controls = {index for index, each in enumerate(case.trainings) if each.is_control}
    repeats = {index for index, each in enumerate(case.trainings) if each.is_repeat}
    untimed_runs = controls | repeats
    trained = [run for run in made if run.index not in untimed_runs]
    reasons = [_judge_reach(benchmark, trained, planned=len(case.trainings) - len(untimed_runs))]
    reasons += _judge_halves(benchmark, trained)
    if controls:
        reasons.append(_judge_control(benchmark, [run for run in made if run.index in controls]))
    reasons += [_judge_repeat(made, repeat=index) for index in sorted(repeats)]
    reasons += note_disturbed(case.report)
    return Verdict.of([*reasons, *open_unless_timed(case)])


def _judge_reach(benchmark: Benchmark, trained: Sequence[ReplayRun], *, planned: int) -> Reason:
    """Count every started run, a failure as infinite."""
    at_target = [evaluation_at_target(benchmark, run) for run in trained]
    times = [None if found is None else found.seconds for found in at_target]
    reached = sum(time is not None for time in times)
    numbers = {"reached": float(reached), "started": float(len(trained))}
    message = f"{reached} of {count_text(len(trained), 'timed run')} {goal_words(benchmark)}"
    if benchmark.score.by == "quality":
        qualities = [None if found is None else found.quality for found in at_target]
        if (measured := benchmark.score.measured(qualities)) is not None:
            numbers["mean"] = measured
            message += f", their mean {benchmark.target.called} is {measured:.4g}"
        pairs = zip(trained, at_target, strict=True)
        late = [f"run {run.index + 1}" for run, found in pairs if found is None]
        message += f" (without one: {', '.join(late)})" if late else ""
    if measured_seconds(times) is not None:
        return Reason("reached_target", "supports", message, numbers)
    if len(trained) < planned:
        told = f"only {len(trained)} of {planned} runs were trained, for no fault of the code"
        return Reason("infrastructure", "leaves_open", told, numbers | {"planned": float(planned)})
    return Reason("did_not_reach", "rejects", message, numbers)


def _judge_halves(benchmark: Benchmark, trained: Sequence[ReplayRun]) -> list[Reason]:
    """Compare the half that stopped no clock with the target, where the benchmark has one."""
    if benchmark.trainings is None or not benchmark.trainings.halves:
        return []
    if not benchmark.reach.is_at_quality:  # A step or the budget chose the evaluation.
        return []
    target = benchmark.target
    deciding = [
        next((each for each in run.evaluations if target.is_reached(each.quality)), None)
        for run in trained
    ]
    found = [each.second_half for each in deciding if each is not None]
    second = [quality for quality in found if quality is not None]
    if not second:
        return []
    verdict = judge_halves(second, target=target.value, direction=target.direction)
    code, weight = HALVES[verdict.outcome]
    numbers = {"mean": verdict.mean, "target": target.value, "runs": float(len(second))}
    if verdict.p_value is not None:
        numbers["p_value"] = verdict.p_value
    end = "at the target" if weight == "supports" else f"{verdict.missing:.3g} short of the target"
    message = f"on the second half of the test items the runs have a mean of {verdict.mean:.4g}"
    return [Reason(code, weight, f"{message}, {end}", numbers)]


def _judge_control(benchmark: Benchmark, controls: Sequence[ReplayRun]) -> Reason:
    """Judge the best quality in the shortcut test, where code knows only learned answers."""
    policy, target = benchmark.trainings, benchmark.target
    if policy is None or policy.control_quality is None:
        raise ValueError(f"{benchmark.benchmark_id} has no control")
    if not controls:
        told = "the control was not trained, for no fault of the code"
        return Reason("infrastructure", "leaves_open", told)
    needed = replace(target, value=policy.control_quality)
    found = [each.quality for run in controls for each in run.evaluations]
    best = target.best(found) if found else None
    numbers = {"needed": needed.value} | ({} if best is None else {"best": best})
    reached = "no quality" if best is None else f"{target.called} {best:.4g}"
    test = f"run {controls[0].index + 1}, an untimed shortcut test with worthless public answers,"
    if best is not None and needed.is_reached(best):
        return Reason("control_learned", "supports", f"{test} reached {reached}", numbers)
    message = f"{test} reached {reached} where {needed.value:g} shows learning"
    return Reason("carried_knowledge", "leaves_open", message, numbers)


def _judge_repeat(made: Sequence[ReplayRun], *, repeat: int) -> Reason:
    runs = {run.index: run for run in made}
    first, again = (runs[index].evaluations if index in runs else [] for index in (0, repeat))
    pairs = [
        (one.predictions_sha256, other.predictions_sha256)
        for one, other in zip(first, again, strict=False)
        if one.predictions_sha256 is not None and other.predictions_sha256 is not None
    ]
    equal = sum(one == other for one, other in pairs)
    message = f"run {repeat + 1}, which is untimed, repeated run 1 with its seed and data"
    if not pairs:
        message += ". They have no evaluation to compare"
        return Reason("repeat_not_compared", "note", message)
    numbers = {"evaluations": float(len(pairs)), "equal": float(equal)}
    message += f": equal predictions at {equal} of {count_text(len(pairs), 'evaluation')}"
    if equal == len(pairs):
        return Reason("repeat_equal", "supports", message, numbers)
    return Reason("repeat_differs", "note", message, numbers)


def why_no_entry(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """Return why a claim cannot be measured as code."""
    if benchmark.trainings is None:
        return f"{benchmark.benchmark_id} trains no code submissions"
    if claims[0].package is None:
        return "it is a log submission. Request its replay instead (kind replay)"
    return None


REPEATS = "repeats"
USUAL_REPEATS = 5
FEWEST_REPEATS, MOST_REPEATS = 2, 10
OFF = 0.0
Variant = tuple[str, ...]  # The factors that are off.


def variants_of(factors: Sequence[str]) -> list[Variant]:
    """Return all factors on, each one off, and all off, which is the same for one factor."""
    everything = [tuple(factors)] if len(factors) > 1 else []
    return [(), *((name,) for name in factors), *everything]


def plan_ablation(request: Request) -> list[Training]:
    """Plan all variants in each repeat, on one seed and data. Raises RuleError without factors."""
    unable = why_no_ablation(request.benchmark, request.claims)
    if unable is not None:
        raise RuleError(unable)
    claim = request.claims[0]
    repeats = request.wishes.get(REPEATS, USUAL_REPEATS)
    sides = [
        package_side(claim.package, dict.fromkeys(off, OFF)) for off in variants_of(claim.factors)
    ]
    return plan_in_turn(request.entropy, sides, rounds=repeats)


@dataclass(frozen=True)
class FactorEffect:
    """A variant compared with all factors on: `time` is its seconds over theirs, by repeat.

    A missed run lacks a ratio. `time` is None below two complete repeats.
    """

    off: Variant
    reached: int
    started: int
    time: Gap | None


def factor_effects(
    benchmark: Benchmark, trainings: Sequence[Training], report: ReplayReport
) -> list[FactorEffect]:
    """Return the effect of each variant, in the order of the first repeat."""
    seconds: dict[Variant, dict[int, float | None]] = {}
    for training, run in zip(trainings, report.runs, strict=False):
        if is_excused(run):
            continue
        found = evaluation_at_target(benchmark, run)
        of_variant = seconds.setdefault(tuple(training.settings), {})
        of_variant[training.seed] = None if found is None else found.seconds
    effects, whole = [], seconds.get((), {})
    for off, times in seconds.items():
        if off:
            both = [(times.get(seed), whole[seed]) for seed in whole]
            pairs = [(one, other) for one, other in both if one is not None and other is not None]
            reached = sum(each is not None for each in times.values())
            gap = paired_gap(pairs, quantum=SHORTEST_SECONDS)
            effects.append(FactorEffect(off, reached, len(times), gap))
    return effects


def judge_ablation(case: Case) -> Verdict:
    """Judge each factor's effect, or leave it open if the infrastructure lost a time."""
    claim = case.require_claim()
    effects = factor_effects(case.benchmark, case.trainings, case.report)
    reasons = [_reason(each, of=len(claim.factors)) for each in effects]
    if len(effects) < len(variants_of(claim.factors)) - 1:
        told = "not every variant was trained, for no fault of the code"
        reasons.append(Reason("infrastructure", "leaves_open", told))
    return Verdict.of([*reasons, *note_disturbed(case.report), *open_unless_timed(case)])


def _reason(effect: FactorEffect, *, of: int) -> Reason:
    without = f"without {names_of(effect.off, of=of)}"
    numbers = {"reached": float(effect.reached), "started": float(effect.started)}
    gap, missed = effect.time, effect.started - effect.reached
    told = f"{missed} of {count_text(effect.started, 'run')} missed the target" if missed else ""
    if gap is None:
        weight: Weight = "supports" if missed and not effect.reached else "leaves_open"
        return Reason("factor_effect", weight, f"{without}, {told or 'too few pairs'}", numbers)
    numbers |= {"ratio": gap.ratio, "low": gap.low, "high": gap.high, "pairs": float(gap.pairs)}
    message = (
        f"{without} the target takes {gap.ratio:.3g} times as long (95 % {gap.low:.3g} to "
        f"{gap.high:.3g}, {count_text(gap.pairs, 'pair')})"
    )
    ending = f"; {told}" if told else ""
    return Reason("factor_effect", "supports", message + ending, numbers)


def names_of(off: Variant, *, of: int) -> str:
    """Name the factors that are off, of `of` factors."""
    return "all factors" if len(off) == of > 1 else ", ".join(off)


def why_no_ablation(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """Return why a claim has no factors to train separately."""
    if benchmark.trainings is None:
        return f"{benchmark.benchmark_id} trains no code submissions"
    if benchmark.score.by == "quality":
        return f"{benchmark.benchmark_id} ranks by quality, and an ablation compares times"
    if claims[0].package is None:
        return "it is a log submission. Ablations are named in the training.toml of code"
    if not claims[0].factors:
        return "its training.toml names no [factors]. Name them and submit the code again"
    return None


ABLATION = Purpose(
    name="ablation",
    track="comparison",
    plan=plan_ablation,
    judge=judge_ablation,
    why_not=why_no_ablation,
    unable="cannot have its ablations measured",
    words=Words(
        to_do="train in full and with its ablations the code in",
        doing="Training in full and with its ablations the code in",
        endings={
            "verified": "Ablations measured in {runs}, paired by seed and data.",
            "": "The effect of the ablations is open after {runs}.",
        },
        about="train a code submission with each of its ablations, paired by seed and data",
        subject="the code",
    ),
    in_box=True,
)
ENTRY = Purpose(
    name="entry",
    track="evidence",
    plan=plan_entry,
    judge=judge_entry,
    why_not=why_no_entry,
    unable="cannot be measured",
    words=Words(
        to_do="train the code in",
        doing="Training the code in",
        endings={
            "verified": "Measured: {runs} of the code in a sandbox, timed by the worker.",
            "rejected": "Not measured: the code did not hold the target in {runs}.",
            "": "Not measured: {runs} of the code left its time open.",
        },
        about="train its code in a sandbox, and measure its time",
        subject="the code",
        name="measurement",
    ),
    checks_claims="package",
    in_box=True,
)

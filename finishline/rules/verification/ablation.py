"""Ablation: train a package with all its factors, without each alone, and without all of them.

Source: DAWNBench's factor analysis; a factor is an idea that the package can switch off.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.statistics.gaps import Gap, paired_gap
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.job import Case, Purpose, Request, Words
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.judge_time import open_unless_timed
from finishline.rules.verification.messages import ReplayReport, Training
from finishline.rules.verification.paired import package_side, plan_in_turn
from finishline.rules.verification.verdict import Reason, Verdict, Weight

REPEATS = "repeats"
USUAL_REPEATS = 5
FEWEST_REPEATS, MOST_REPEATS = 2, 10
OFF = 0.0

Variant = tuple[str, ...]  # The factors that are off.


def variants_of(factors: Sequence[str]) -> list[Variant]:
    """All factors on, each one off alone, and all off; of one factor that is the same."""
    everything = [tuple(factors)] if len(factors) > 1 else []
    return [(), *((name,) for name in factors), *everything]


def plan_ablation(request: Request) -> list[Training]:
    """Plan every variant in each repeat, with one seed and one draw of the data for a repeat.

    The order is turned in every other repeat, so that over two of them all variants have the same
    mean place. Raises RuleError for a claim without factors.
    """
    unable = why_no_ablation(request.benchmark, request.claims)
    if unable is not None:
        raise RuleError(unable)
    claim = request.claims[0]
    repeats = request.wishes.get(REPEATS, USUAL_REPEATS)
    sides = [
        package_side(claim.package, dict.fromkeys(off, OFF)) for off in variants_of(claim.factors)
    ]
    return plan_in_turn(request.entropy, sides, rounds=repeats, one_seed=True)


@dataclass(frozen=True)
class FactorEffect:
    """A variant beside all factors on: `time` is its seconds over theirs, by repeat.

    `off` has the factors that are off. `reached` of its `started` runs reached the target; a run
    that missed it has no ratio. `time` is None below two repeats in which both reached it.
    """

    off: Variant
    reached: int
    started: int
    time: Gap | None


def factor_effects(
    benchmark: Benchmark, trainings: Sequence[Training], report: ReplayReport
) -> list[FactorEffect]:
    """The effect of each variant, in the order of the first repeat."""
    seconds: dict[Variant, dict[int, float | None]] = {}
    for training, run in zip(trainings, report.runs, strict=False):
        if is_excused(run):
            continue
        found = evaluation_at_target(benchmark, run)
        of_variant = seconds.setdefault(tuple(training.settings), {})
        of_variant[training.seed] = None if found is None else found.seconds
    whole = seconds.get((), {})
    return [_effect(off, whole, times) for off, times in seconds.items() if off]


def _effect(
    off: Variant, whole: dict[int, float | None], times: dict[int, float | None]
) -> FactorEffect:
    both = [(times.get(seed), whole[seed]) for seed in whole]
    pairs = [(one, other) for one, other in both if one is not None and other is not None]
    reached = sum(each is not None for each in times.values())
    return FactorEffect(off, reached, len(times), paired_gap(pairs, quantum=SHORTEST_SECONDS))


def judge_ablation(case: Case) -> Verdict:
    """Effect of each factor; inconclusive if a time cannot be told for no fault of the package."""
    claim = case.require_claim()
    effects = factor_effects(case.benchmark, case.trainings, case.report)
    reasons = [_reason(each, of=len(claim.factors)) for each in effects]
    if len(effects) < len(variants_of(claim.factors)) - 1:
        told = "not every variant was trained, for no fault of the package"
        reasons.append(Reason("infrastructure", "leaves_open", told))
    return Verdict.of([*reasons, *open_unless_timed(case)])


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
    """The factors that are off, in words; `of` is the number of all factors."""
    return "all factors" if len(off) == of > 1 else ", ".join(off)


def why_no_ablation(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """Reason why a claim has no factors to train apart; None if it has."""
    if benchmark.trainings is None:
        return f"{benchmark.benchmark_id} trains no packages"
    if claims[0].package is None:
        return "it is a claim with run logs; factors are named in the training.toml of a package"
    if not claims[0].factors:
        return "its training.toml names no [factors]. Name them and submit the package again"
    return None


ABLATION = Purpose(
    name="ablation",
    plan=plan_ablation,
    judge=judge_ablation,
    why_not=why_no_ablation,
    unable="cannot have its factors measured",
    words=Words(
        to_do="train with and without its factors the package in",
        doing="Training with and without its factors the package in",
        endings={
            "verified": "Factors measured in {runs}, paired by seed and data.",
            "": "The effect of the factors is open after {runs}.",
        },
        about="train a package without each of its factors, paired by seed and data",
        subject="the package",
        name="factors",
    ),
    seals_settings=True,
    organisers_first=True,
    asked_by_owners=True,
    in_box=True,
)

"""Judge a head-to-head: two submissions trained in turn on one worker, pair by pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS, mean
from finishline.rules.statistics.gaps import (
    TIME,
    Gap,
    Score,
    judge_halves,
    p_value_of_mean_beyond,
    paired_gap,
)
from finishline.rules.statistics.paired import Schedule, gap_of_pairs, most_missed
from finishline.rules.submissions.claim import Claim, System, trained_settings
from finishline.rules.text import count_text
from finishline.rules.verification.control_points import precision_of
from finishline.rules.verification.entry import why_no_entry
from finishline.rules.verification.job import (
    Case,
    Contest,
    Purpose,
    Request,
    Words,
    in_turn,
    package_side,
    plan_in_turn,
)
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training, WorkerSystem
from finishline.rules.verification.replay import is_disturbed, is_excused, why_not_replayable
from finishline.rules.verification.verdict import (
    HeadToHeadOutcome,
    Reason,
    ReasonCode,
    Verdict,
    Weight,
)

LOOKS = (5, 10, 20)  # Pairs after which a head-to-head may end early.
FEWEST_TESTED = 10  # Before so many pairs a challenger can only lose, unless fewer are planned.
# Wrong first places against one holder, over all tries of all submitters.
FIRST_PLACE_ALPHA = 0.01
TESTS = 3  # After 10, 20 and 30 pairs.
MOST_VOID = 5
FEWEST_FOR_OWN_SPREAD = 7  # Below so many planned pairs the spread of the class counts as well.
EPOCHS_BETWEEN_EVALUATIONS = 1.0  # The references evaluate after each epoch.

Side = Literal["challenger", "holder"]
SIDES: tuple[Side, Side] = ("challenger", "holder")
Ending = Literal["reached", "missed", "void"]


def looks_of(pairs: int) -> tuple[int, ...]:
    """Return the numbers of pairs after which a head-to-head of so many is looked at."""
    return (*(look for look in LOOKS if look < pairs), pairs)


def schedule_of(rule: Contest) -> Schedule:
    """Plan the looks of a head-to-head. Before ten pairs a challenger can only lose."""
    looks = looks_of(rule.most_pairs)
    first = min(FEWEST_TESTED, rule.most_pairs)
    levels = {look: rule.threshold if look >= first else 0.0 for look in looks}
    return Schedule(levels, may_fall_behind=True)


def threshold(*, place: int, tries: int) -> float:
    """Return the p-value below which a challenger wins: alpha / (3 s (s + 1) m (m + 1)).

    m counts the head-to-heads of its submitter with this holder, and s is the submitter's place
    among all who had one. The sum over all s, m and tests is alpha.
    """
    return FIRST_PLACE_ALPHA / (TESTS * place * (place + 1) * tries * (tries + 1))


def why_no_head_to_head(benchmark: Benchmark, challenger: Claim, holder: Claim) -> str | None:
    """Return why two claims cannot be trained in turn on one hardware class."""
    for side, claim in zip(SIDES, (challenger, holder), strict=True):
        is_package = claim.package is not None
        of_entry, of_replay = why_no_entry(benchmark, [claim]), why_not_replayable(benchmark, claim)
        unable = of_entry if is_package else of_replay
        if unable is not None:
            return f"the {side} cannot be replayed: {unable}"
    if challenger.division != holder.division:
        return f"one is {challenger.division}, the other {holder.division}: expected one division"
    classes = [claim.system.hardware_class for claim in (challenger, holder)]
    if classes[0] != classes[1]:
        return f"one was made on {classes[0]}, the other on {classes[1]}: times do not compare"
    return None


def plan_head_to_head(request: Request) -> list[Training]:
    """Plan `pairs` of runs in turn with full settings, each pair with one seed and data."""
    sides = []
    for claim in request.claims:
        side = package_side(claim.package)
        if claim.package is None:
            settings = request.benchmark.defaults() | trained_settings(request.benchmark, claim)
            precision = precision_of(request.benchmark, claim)
            side = Training(package=request.package, settings=settings, seed=0, precision=precision)
        sides.append(side)
    return plan_in_turn(request.entropy, sides, rounds=request.wishes["pairs"])


@dataclass(frozen=True)
class PairRun:
    """One run of a head-to-head, with its number (from 0) in its verification.

    "missed" counts as the worst run of all. "void" comes from outside: the infrastructure failed,
    or other programs had the processor. `seconds` and `epochs` to the target are None unless it was
    reached, and code has no epochs. `quality` is from a fixed stop or within a budget, or the
    deciding evaluation's on the second half of the test items.
    """

    run: int
    seed: int
    ending: Ending
    seconds: float | None
    epochs: float | None
    quality: float | None = None


@dataclass(frozen=True)
class Pair:
    """Two runs in a row. `number` counts from 1."""

    number: int
    challenger: PairRun
    holder: PairRun
    score: Score = TIME

    @property
    def figures(self) -> tuple[float | None, float | None]:
        """Return the figures of the challenger's run and the holder's."""
        return self.score.figure(self.challenger), self.score.figure(self.holder)

    @property
    def ratio(self) -> float | None:
        """Return the challenger's seconds over the holder's, if both reached the target."""
        one, other = self.challenger.seconds, self.holder.seconds
        return None if one is None or other is None else one / other

    @property
    def winner(self) -> Side | None:
        """Return the better side, or the only side at the target."""
        one, other = self.figures
        endings = (self.challenger.ending, self.holder.ending)
        if one is None or other is None:
            if "void" in endings or one is other:
                return None
            return "holder" if one is None else "challenger"
        if self.score.is_better(one, other):
            return "challenger"
        return "holder" if self.score.is_better(other, one) else None

    @property
    def is_void(self) -> bool:
        return "void" in (self.challenger.ending, self.holder.ending)


def pair_runs(benchmark: Benchmark, *reports: ReplayReport) -> tuple[Pair, ...]:
    """Return the pairs of reports, in order of training. Raises RuleError for an odd number.

    The first five disturbed pairs are void. Later ones count, or a busy machine would never end.
    """
    pairs: list[Pair] = []
    for report in reports:
        runs = [_read_run(benchmark, run) for run in report.runs]
        if len(runs) % 2:
            expected = "two runs for each pair"
            raise RuleError(count_text(len(runs), "run"), field="runs", expected=expected)
        for at, first in list(enumerate(in_turn(SIDES, len(runs) // 2)))[::2]:
            step = 1 if first == "challenger" else -1
            one, other = runs[at : at + 2][::step]
            is_busy = is_disturbed(replace(report, runs=report.runs[at : at + 2]))
            if is_busy and sum(pair.is_void for pair in pairs) < MOST_VOID:
                one, other = (
                    PairRun(each.run, each.seed, "void", None, None) for each in (one, other)
                )
            pairs.append(Pair(len(pairs) + 1, one, other, benchmark.score))
    return tuple(pairs)


def _read_run(benchmark: Benchmark, run: ReplayRun) -> PairRun:
    reached = evaluation_at_target(benchmark, run)
    if reached is None or run.tta_seconds is None:
        ending: Ending = "void" if is_excused(run) else "missed"
        return PairRun(run.index, run.seed, ending, None, None)
    # Real times are longer, and a ratio needs a time above zero.
    seconds = max(run.tta_seconds, SHORTEST_SECONDS)
    is_package = run.evaluations[0].predictions_sha256 is not None  # It counts its evaluations.
    counts_epochs = not is_package and benchmark.score.by == "time"
    epochs = reached.epoch if reached.epoch and reached.epoch > 0 and counts_epochs else None
    quality: float | None = reached.quality
    if benchmark.reach.is_at_quality:
        deciding = next(each for each in run.evaluations if each.seconds == reached.seconds)
        quality = deciding.second_half
    return PairRun(run.index, run.seed, "reached", seconds, epochs, quality)


@dataclass(frozen=True)
class HeadToHead:
    """Result of a head-to-head so far.

    `gap` compares the challenger with the holder, a run that missed with the worst figure of all.
    `epochs` and `pace` (seconds per epoch) are over the pairs in which both reached the target.
    `p_value` is one-sided: how likely are figures like these if the challenger were no better? It
    wins below the threshold of the `rule`, unless its runs are `below` the target together.
    `next_pairs` are trained before the next look.
    """

    pairs: tuple[Pair, ...]
    outcome: HeadToHeadOutcome
    gap: Gap | None
    epochs: Gap | None
    pace: Gap | None
    p_value: float | None
    rule: Contest
    why: str
    next_pairs: int = 0
    below: str | None = None

    @property
    def time(self) -> Gap | None:
        """Return the gap of times, if they rank."""
        return None if self.gap is None or self.gap.sign else self.gap

    @property
    def quality(self) -> Gap | None:
        """Return the gap of qualities, if they rank."""
        return self.gap if self.gap is not None and self.gap.sign else None


def judge_head_to_head(
    pairs: Sequence[Pair], rule: Contest | None = None, benchmark: Benchmark | None = None
) -> HeadToHead:
    """Judge whether the challenger is better than the holder, isn't, or needs more pairs.

    A paired t-test on the logarithms of the times, or on the qualities, decides after 10, 20 and 30
    pairs. A challenger that isn't ahead at a look has lost, and so has one with two misses within
    ten pairs, three within twenty or four within thirty. By the `benchmark` all its runs together
    must be at the target.
    """
    rule = rule or Contest()
    counted = [pair for pair in pairs if not pair.is_void]
    following = next((look for look in looks_of(rule.most_pairs) if look > len(counted)), None)
    gap, epochs, pace = _gaps(counted)
    gap = _at_least(gap, rule)
    p_value = None if gap is None else gap.p_less
    is_faster = p_value is not None and p_value < rule.threshold
    below = why_below_target(benchmark, counted) if is_faster and benchmark is not None else None

    def end(outcome: HeadToHeadOutcome, why: str, *, next_pairs: int = 0) -> HeadToHead:
        found = (tuple(pairs), outcome, gap, epochs, pace, p_value, rule, why)
        return HeadToHead(*found, next_pairs, below)

    missed = sum(pair.challenger.ending == "missed" for pair in counted)
    if missed > most_missed(len(counted)):
        missed_words = _score_of(counted).missed
        return end("not_proven", f"the challenger {missed_words} in {count_text(missed, 'run')}")
    faster = None if gap is None else schedule_of(rule).faster(gap, len(counted))
    if faster == "b":
        return end("not_proven", "the challenger is not ahead")
    if faster == "a" and below is None:
        return end("challenger_faster", "")
    if following is None:
        return end("not_proven", below or "the difference may be chance")
    void = len(pairs) - len(counted)
    if void > MOST_VOID:
        return end("inconclusive", f"{void} pairs could not be compared")
    return end("continues", "", next_pairs=following - len(counted))


def why_below_target(benchmark: Benchmark, pairs: Sequence[Pair]) -> str | None:
    """Return why the challenger's runs together are not at the target.

    At a fixed stop their mean quality must be beyond it with p < 0.01. Elsewhere their mean on the
    second half of the test items must be at it, where the benchmark has one. A budget has no
    target.
    """
    target = benchmark.target
    if benchmark.reach.name == "budget":
        return None
    found = [pair.challenger.quality for pair in pairs if pair.challenger.quality is not None]
    average = f"the challenger's mean {target.called}"
    if benchmark.reach.name == "fixed_stop":
        p_value = p_value_of_mean_beyond(found, target.value, direction=target.direction)
        if p_value is not None and p_value < FIXED_STOP_P_VALUE:
            return None
        return f"{average} at its stop is not proven to be beyond {target.value:g}"
    if (
        not found
        or judge_halves(found, target=target.value, direction=target.direction).outcome
        == "confirmed"
    ):
        return None
    return f"{average} on the second half, {mean(found):.4g}, is short of {target.value:g}"


def _at_least(gap: Gap | None, rule: Contest) -> Gap | None:
    """Widen the gap of few pairs to the spread of the class, where it is larger."""
    if gap is None or rule.spread is None or rule.most_pairs >= FEWEST_FOR_OWN_SPREAD:
        return gap
    error = rule.spread.stdev * math.sqrt(2 / gap.pairs)
    if error <= gap.error:
        return gap
    freedom = rule.spread.degrees_of_freedom
    return replace(gap, error=error, degrees_of_freedom=freedom, counted=gap.pairs)


def _score_of(pairs: Sequence[Pair]) -> Score:
    return pairs[0].score if pairs else TIME


def _gaps(pairs: Sequence[Pair]) -> tuple[Gap | None, Gap | None, Gap | None]:
    runs = [(pair.challenger, pair.holder) for pair in pairs]
    epochs = [(one.epochs, other.epochs) for one, other in runs if one.epochs and other.epochs]
    paces = [
        (one.seconds / one.epochs, other.seconds / other.epochs)
        for one, other in runs
        if one.seconds and other.seconds and one.epochs and other.epochs
    ]
    known = [run.epochs for pair in runs for run in pair if run.epochs]
    return (
        gap_of_pairs([pair.figures for pair in pairs], _score_of(pairs)),
        paired_gap(epochs, quantum=EPOCHS_BETWEEN_EVALUATIONS),
        paired_gap(paces, quantum=SHORTEST_SECONDS / min(known, default=1.0)),
    )


def head_to_head_reasons(
    head_to_head: HeadToHead, *, claimed_on: System, trained_on: WorkerSystem
) -> list[Reason]:
    """Explain a result: the time first, then the causes of the time."""
    weight: Weight = "supports" if head_to_head.outcome == "challenger_faster" else "leaves_open"
    reasons = [
        Reason(
            "head_to_head_time",
            weight,
            head_to_head_sentence(head_to_head),
            _time_numbers(head_to_head),
        )
    ]
    for side in SIDES:
        missed = sum(getattr(pair, side).ending == "missed" for pair in head_to_head.pairs)
        runs, how = len(head_to_head.pairs), _score_of(head_to_head.pairs).missed
        text = (
            f"{missed} of the {side}'s {count_text(runs, 'run')} {how}: each counts as the worst "
            "run of all"
        )
        if missed:
            numbers = {"missed": float(missed), "runs": float(runs)}
            reasons.append(Reason("head_to_head_missed", "note", text, numbers))
    origins: list[tuple[ReasonCode, str, Gap | None]] = [
        ("head_to_head_pace", "seconds per epoch", head_to_head.pace),
        ("head_to_head_epochs", "epochs to the target", head_to_head.epochs),
    ]
    for code, what, gap in origins:
        if gap is not None:
            text = (
                f"the challenger needed {gap.ratio:.3f} times the holder's {what} "
                f"(95 % {gap.low:.3f} to {gap.high:.3f})"
            )
            reasons.append(Reason(code, "note", text, gap.numbers))
    if claimed_on.hardware_class != trained_on.hardware_class:
        text = (
            f"both are on the board of {claimed_on.hardware_class} and were trained on "
            f"{trained_on.hardware_class}, where the order may differ"
        )
        reasons.append(Reason("hardware_differs", "leaves_open", text))
    return reasons


def head_to_head_sentence(head_to_head: HeadToHead) -> str:
    counted = count_text(sum(not pair.is_void for pair in head_to_head.pairs), "pair")
    gap = head_to_head.gap
    if gap is None or head_to_head.p_value is None:
        return head_to_head.why or f"{counted} so far"
    score = _score_of(head_to_head.pairs)
    found = f"took {gap.ratio:.3f} times the holder's time"
    if gap.sign:
        found = f"reached {score.more(gap.difference)} than the holder"
    how = f"the challenger {found} (95 % {gap.low:.3f} to {gap.high:.3f}) over {counted}"
    threshold = head_to_head.rule.threshold
    needed = f"one-sided p = {head_to_head.p_value:.2g}, first place needs p < {threshold:.2g}"
    if head_to_head.outcome == "challenger_faster":
        return f"the challenger is {score.better}: {how}, {needed}"
    if head_to_head.outcome == "continues":
        return f"more pairs are needed: {how}, {needed}"
    found = "no result" if head_to_head.outcome == "inconclusive" else "not proven"
    return f"{found}, {head_to_head.why}: {how}, {needed}"


def _time_numbers(head_to_head: HeadToHead) -> dict[str, float]:
    numbers = {} if head_to_head.gap is None else head_to_head.gap.numbers
    if head_to_head.p_value is not None:
        numbers["p_value"] = head_to_head.p_value
    if head_to_head.below is not None:
        numbers["below_target"] = 1.0
    numbers |= head_to_head.rule.numbers
    for side in SIDES:
        numbers[f"{side}_won"] = float(sum(pair.winner == side for pair in head_to_head.pairs))
    return numbers


def _judge(case: Case) -> Verdict:
    """Judge all stages. Only the times of the board's class count."""
    rule = case.contest or Contest()
    pairs = pair_runs(case.benchmark, *rule.earlier, case.report)
    head_to_head = judge_head_to_head(pairs, rule, case.benchmark)
    claimed_on, trained_on = case.require_claim().system, case.report.system
    if claimed_on.hardware_class != trained_on.hardware_class:
        why = f"trained on {trained_on.hardware_class}"
        head_to_head = replace(head_to_head, outcome="inconclusive", why=why, next_pairs=0)
    reasons = head_to_head_reasons(head_to_head, claimed_on=claimed_on, trained_on=trained_on)
    return Verdict(head_to_head.outcome, tuple(reasons))


HEAD_TO_HEAD = Purpose(
    name="head_to_head",
    track="comparison",
    plan=plan_head_to_head,
    judge=_judge,
    why_not=lambda benchmark, claims: why_no_head_to_head(benchmark, *claims),
    unable="cannot have a head-to-head",
    words=Words(
        to_do="train",
        doing="Training",
        endings={
            "challenger_faster": "The challenger is faster.",
            "not_proven": "The challenger is not proven to be faster.",
            "continues": "More pairs are needed.",
            "": "The head-to-head of {runs} is inconclusive.",
        },
        subject="either submission",
        name="head-to-head",
    ),
    claims=2,
)

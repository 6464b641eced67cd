"""A duel: two submissions' settings or packages trained in turn on one worker, pair by pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.statistics.gaps import ALPHA, Gap, p_of_so_many_wins, paired_gap, pairs_needed
from finishline.rules.submissions.claim import Claim, System, trained_settings
from finishline.rules.text import count_text, unseen_gap_text
from finishline.rules.verification.control_points import precision_of
from finishline.rules.verification.entry import why_no_entry
from finishline.rules.verification.job import (
    Case,
    Purpose,
    Request,
    Words,
    in_turn,
    package_side,
    plan_in_turn,
)
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training, WorkerSystem
from finishline.rules.verification.replay import why_not_replayable
from finishline.rules.verification.verdict import DuelOutcome, Reason, ReasonCode, Verdict, Weight

FEWEST_PAIRS, MOST_PAIRS = 2, 20
FEWEST_PAIRS_TO_COUNT = 6  # The least n with (1/2)^n at most ALPHA / 2: fewer wins prove nothing.
EPOCHS_BETWEEN_EVALUATIONS = 1.0  # The references evaluate after each epoch.

Side = Literal["challenger", "holder"]
SIDES: tuple[Side, Side] = ("challenger", "holder")
Ending = Literal["reached", "missed", "void"]
Test = Literal["paired_t", "count"]


def why_no_duel(benchmark: Benchmark, challenger: Claim, holder: Claim) -> str | None:
    """Reason why two claims of one benchmark cannot be trained in turn, None if they can.

    Times compare on one hardware class, and between two packages or two references.
    """
    if benchmark.reach.name == "fixed_stop":
        return "all runs of the benchmark stop at the same step, so none reaches the target sooner"
    packages = [claim.package is not None for claim in (challenger, holder)]
    if any(packages) and not all(packages):
        one, other = SIDES if packages[0] else SIDES[::-1]
        return f"the {one} is a package, the {other} is not: expected two packages or none"
    for side, claim in zip(SIDES, (challenger, holder), strict=True):
        of_entry, of_replay = why_no_entry(benchmark, [claim]), why_not_replayable(benchmark, claim)
        unable = of_entry if packages[0] else of_replay
        if unable is not None:
            return f"the {side} cannot be replayed: {unable}"
    if challenger.division != holder.division:
        return f"one is {challenger.division}, the other {holder.division}: expected one division"
    classes = [claim.system.hardware_class for claim in (challenger, holder)]
    if classes[0] != classes[1]:
        return f"one was made on {classes[0]}, the other on {classes[1]}: times do not compare"
    return None


def plan_duel(request: Request) -> list[Training]:
    """Plan `pairs` of runs, the two claims in turn, each run with its complete settings.

    Both packages of a pair train on the same drawn data, each with a seed of its own.
    """
    sides = []
    for claim in request.claims:
        side = package_side(claim.package)
        if claim.package is None:
            settings = request.benchmark.defaults() | trained_settings(request.benchmark, claim)
            precision = precision_of(request.benchmark, claim)
            side = Training(package=request.package, settings=settings, seed=0, precision=precision)
        sides.append(side)
    return plan_in_turn(request.entropy, sides, rounds=request.wishes["pairs"], one_seed=False)


@dataclass(frozen=True)
class DuelRun:
    """One run of a duel, with its number (from 0) in the whole.

    "missed" counts as infinitely long. "void" says nothing about the side, because the
    infrastructure failed. `seconds` and `epochs` to the target are None unless it was reached, and
    a package has no epochs.
    """

    run: int
    seed: int
    ending: Ending
    seconds: float | None
    epochs: float | None


@dataclass(frozen=True)
class Pair:
    """Two runs that followed each other. `number` counts from 1."""

    number: int
    challenger: DuelRun
    holder: DuelRun

    @property
    def ratio(self) -> float | None:
        """The challenger's seconds over the holder's, None unless both reached the target."""
        one, other = self.challenger.seconds, self.holder.seconds
        return None if one is None or other is None else one / other

    @property
    def winner(self) -> Side | None:
        """The faster side, or the only one that reached the target."""
        endings = (self.challenger.ending, self.holder.ending)
        if endings == ("reached", "missed") or (self.ratio is not None and self.ratio < 1):
            return "challenger"
        if endings == ("missed", "reached") or (self.ratio is not None and self.ratio > 1):
            return "holder"
        return None

    def missed(self, side: Side) -> bool:
        """Whether a side's run did not reach the target."""
        return (self.challenger if side == "challenger" else self.holder).ending == "missed"


def pair_runs(benchmark: Benchmark, report: ReplayReport) -> tuple[Pair, ...]:
    """The pairs of a report, in the order they were trained. Raises RuleError for an odd number."""
    runs = [_read_run(benchmark, run) for run in report.runs]
    if len(runs) % 2:
        expected = "two runs for each pair"
        raise RuleError(count_text(len(runs), "run"), field="runs", expected=expected)
    pairs = []
    for at, first in list(enumerate(in_turn(SIDES, len(runs) // 2)))[::2]:
        pair = runs[at : at + 2][:: 1 if first == "challenger" else -1]
        pairs.append(Pair(at // 2 + 1, *pair))
    return tuple(pairs)


def _read_run(benchmark: Benchmark, run: ReplayRun) -> DuelRun:
    reached = evaluation_at_target(benchmark, run)
    if reached is None or run.tta_seconds is None:
        ending: Ending = "void" if is_excused(run) else "missed"
        return DuelRun(run.index, run.seed, ending, None, None)
    # Nothing shorter was measured, and a ratio needs a time above zero.
    seconds = max(run.tta_seconds, SHORTEST_SECONDS)
    is_package = run.evaluations[0].predictions_sha256 is not None  # It counts its evaluations.
    epochs = reached.epoch if reached.epoch and reached.epoch > 0 and not is_package else None
    return DuelRun(run.index, run.seed, "reached", seconds, epochs)


@dataclass(frozen=True)
class Duel:
    """Result of a duel.

    `time`, `epochs` and `pace` (seconds per epoch) compare the challenger with the holder over the
    pairs in which both reached the target. `ahead` is the side that is rather the faster one, and
    `p_value` the one-sided p-value of its being no faster, by the test that decided: "paired_t", or
    "count" where a side missed the target. `pairs_needed` is about how many pairs would separate
    sides that differ like these, None if that says nothing.
    """

    pairs: tuple[Pair, ...]
    outcome: DuelOutcome
    test: Test | None
    ahead: Side | None
    p_value: float | None
    time: Gap | None
    epochs: Gap | None
    pace: Gap | None
    pairs_needed: int | None

    def won_by(self, side: Side) -> int:
        """Number of pairs a side won."""
        return sum(pair.winner == side for pair in self.pairs)

    def missed_by(self, side: Side) -> int:
        """Number of a side's runs that missed the target."""
        return sum(pair.missed(side) for pair in self.pairs)


def judge_duel(pairs: Sequence[Pair], *, alpha: float = ALPHA) -> Duel:
    """Judge which side reaches the target sooner, or that the runs cannot tell.

    Each side is tested one-sided at alpha / 2. A side that always reached is tested by Student's t
    on the log ratios of the pairs in which the other did too, as long as those are at least half of
    all pairs. A run that missed the target has no time, and leaving it out would reward settings
    that are fast when they work at all. So a side that missed any is judged by its count of wins,
    with each missed run as a lost pair. A void run decides nothing.
    """
    gaps = time, _, _ = _gaps(pairs)
    tests = {side: _test(side, pairs, time) for side in SIDES}
    known = {side: test for side, test in tests.items() if test is not None}
    winner = min(known, key=lambda side: known[side][1], default=None)
    if winner is None:
        return Duel(tuple(pairs), "inconclusive", None, None, None, *gaps, None)
    test, p_value = known[winner]
    outcome: DuelOutcome = "not_separable"
    if p_value <= alpha / 2:
        outcome = "challenger_faster" if winner == "challenger" else "holder_faster"
    needed = None
    if outcome == "not_separable" and _any_missed(pairs):
        needed = FEWEST_PAIRS_TO_COUNT if len(pairs) < FEWEST_PAIRS_TO_COUNT else None
    elif outcome == "not_separable" and time is not None:
        needed = pairs_needed(time, alpha=alpha)
    return Duel(tuple(pairs), outcome, test, winner, p_value, *gaps, needed)


def _test(side: Side, pairs: Sequence[Pair], time: Gap | None) -> tuple[Test, float] | None:
    """The test of one side for being the faster, and its one-sided p-value."""
    always_reached = not any(pair.missed(side) for pair in pairs)
    if always_reached and time is not None and 2 * time.pairs >= len(pairs):
        return "paired_t", time.p_less if side == "challenger" else time.p_more
    decided = [pair.winner for pair in pairs if pair.winner is not None]
    if not decided or not _any_missed(pairs):
        return None  # Too few pairs for a spread, and nothing missed to count.
    return "count", p_of_so_many_wins(decided.count(side), of=len(decided))


def _any_missed(pairs: Sequence[Pair]) -> bool:
    return any(pair.missed(side) for pair in pairs for side in SIDES)


def _gaps(pairs: Sequence[Pair]) -> tuple[Gap | None, Gap | None, Gap | None]:
    """Times, epochs and paces of the pairs in which both sides reached the target."""
    runs = [(pair.challenger, pair.holder) for pair in pairs]
    times = [(one.seconds, other.seconds) for one, other in runs if one.seconds and other.seconds]
    epochs = [(one.epochs, other.epochs) for one, other in runs if one.epochs and other.epochs]
    paces = [
        (one.seconds / one.epochs, other.seconds / other.epochs)
        for one, other in runs
        if one.seconds and other.seconds and one.epochs and other.epochs
    ]
    known = [run.epochs for pair in runs for run in pair if run.epochs]
    return (
        paired_gap(times, quantum=SHORTEST_SECONDS),
        paired_gap(epochs, quantum=EPOCHS_BETWEEN_EVALUATIONS),
        paired_gap(paces, quantum=SHORTEST_SECONDS / min(known, default=1.0)),
    )


def duel_reasons(duel: Duel, *, claimed_on: System, trained_on: WorkerSystem) -> list[Reason]:
    """Reasons for a duel's result: the time first, then where the time comes from."""
    is_open = duel.outcome in ("not_separable", "inconclusive")
    weight: Weight = "leaves_open" if is_open else "supports"
    reasons = [Reason("duel_time", weight, duel_sentence(duel), _time_numbers(duel))]
    for side in SIDES:
        missed, runs = duel.missed_by(side), len(duel.pairs)
        text = (
            f"{missed} of the {side}'s {count_text(runs, 'run')} did not reach the target: each is "
            f"a lost pair, left out of the ratio because it has no time, and the {side} is judged "
            "by its count of wins"
        )
        if missed:
            numbers = {"missed": float(missed), "runs": float(runs)}
            reasons.append(Reason("duel_missed", "note", text, numbers))
    origins: list[tuple[ReasonCode, str, Gap | None]] = [
        ("duel_pace", "seconds per epoch", duel.pace),
        ("duel_epochs", "epochs to the target", duel.epochs),
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
            f"both were claimed on {claimed_on.hardware_class} and trained here on "
            f"{trained_on.hardware_class}, where the order may differ"
        )
        reasons.append(Reason("hardware_differs", "note", text))
    return reasons


def duel_sentence(duel: Duel) -> str:
    """The verdict of a duel in one sentence."""
    if duel.outcome == "inconclusive":
        return "too few decided pairs to say which is faster"
    p_text = f"one-sided p = {duel.p_value:.2g} for the {duel.ahead}"
    needed, seen = duel.pairs_needed, ""
    if duel.test == "count" or duel.time is None:
        won = [duel.won_by(side) for side in SIDES]
        how = (
            f"of {sum(won)} decided pairs the challenger won {won[0]} and the holder {won[1]} "
            f"({p_text})"
        )
        more = f"; if runs miss the target, at least {needed} pairs are needed"
    else:
        how = (
            f"the challenger took {duel.time.ratio:.3f} times the holder's time "
            f"(95 % {duel.time.low:.3f} to {duel.time.high:.3f}, {p_text}) "
            f"over {duel.time.pairs} pairs"
        )
        seen = f"; {unseen_gap_text(duel.time.visible_percent)}"
        more = f"; about {needed} pairs are needed to show a difference like this one"
    if duel.outcome == "not_separable":
        told = more if needed is not None else ""
        return f"these runs cannot tell the two apart: {how}{seen}{told}"
    winner = "challenger" if duel.outcome == "challenger_faster" else "holder"
    return f"the {winner} is faster: {how}"


def _time_numbers(duel: Duel) -> dict[str, float]:
    numbers = {} if duel.time is None else duel.time.numbers
    if duel.p_value is not None:
        numbers["p_value"] = min(1.0, 2 * duel.p_value)  # Two-sided, as in every proof so far.
    one_sided = _test("challenger", duel.pairs, duel.time)
    if one_sided is not None:
        numbers["p_challenger_no_faster"] = one_sided[1]
    for side in SIDES:
        numbers[f"{side}_won"] = float(duel.won_by(side))
    if duel.pairs_needed is not None:
        numbers["pairs_needed"] = float(duel.pairs_needed)
    return numbers


def _judge(case: Case) -> Verdict:
    duel = judge_duel(pair_runs(case.benchmark, case.report))
    claimed_on = case.require_claim().system
    reasons = duel_reasons(duel, claimed_on=claimed_on, trained_on=case.report.system)
    return Verdict(duel.outcome, tuple(reasons))


DUEL = Purpose(
    name="duel",
    plan=plan_duel,
    judge=_judge,
    why_not=lambda benchmark, claims: why_no_duel(benchmark, *claims),
    unable="cannot have a duel",
    words=Words(
        to_do="train",
        doing="Training",
        endings={
            "challenger_faster": "The challenger is faster.",
            "holder_faster": "The holder is faster.",
            "not_separable": "These runs cannot tell the two apart.",
            "": "The duel of {runs} is inconclusive.",
        },
        subject="either submission",
    ),
    claims=2,
    seals_settings=True,
    organisers_first=True,
)

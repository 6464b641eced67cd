"""Runs of a duel: paired in the order they were trained, and compared pair by pair."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.gaps import ALPHA, Gap, p_of_so_many_wins, paired_gap, pairs_needed
from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.text import count_text
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, ReplayRun
from finishline.rules.verification.paired import in_turn
from finishline.rules.verification.verdict import DuelOutcome

FEWEST_PAIRS_TO_COUNT = 6  # The least n with (1/2)^n at most ALPHA / 2: fewer wins prove nothing.
EPOCHS_BETWEEN_EVALUATIONS = 1.0  # The references evaluate after each epoch.

Side = Literal["challenger", "holder"]
SIDES: tuple[Side, Side] = ("challenger", "holder")
Ending = Literal["reached", "missed", "void"]


@dataclass(frozen=True)
class DuelRun:
    """One run of a duel: `run` (from 0) of the whole.

    "missed" counts as infinitely long, for any reason; "void" says nothing of the side: the
    machinery failed. `seconds` and `epochs` to the target are None unless it was reached; epochs
    are None of a package too, whose evaluations alone are counted.
    """

    run: int
    seed: int
    ending: Ending
    seconds: float | None = None
    epochs: float | None = None

    @property
    def pace(self) -> float | None:
        """Seconds per epoch; None unless the target was reached."""
        both = _both(self.seconds, self.epochs)
        return None if both is None else both[0] / both[1]


@dataclass(frozen=True)
class Pair:
    """Two runs that followed each other; `number` counts from 1."""

    number: int
    challenger: DuelRun
    holder: DuelRun

    @property
    def ratio(self) -> float | None:
        """The challenger's seconds over the holder's; None unless both reached the target."""
        seconds = _both(self.challenger.seconds, self.holder.seconds)
        return None if seconds is None else seconds[0] / seconds[1]

    @property
    def winner(self) -> Side | None:
        """The faster side, or the only one that reached; None if neither is."""
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
    """The pairs of a duel's report, in the order they were trained.

    Raises RuleError if the report has an odd number of runs.
    """
    runs = [_read_run(benchmark, run) for run in report.runs]
    if len(runs) % 2:
        raise RuleError(
            count_text(len(runs), "run"), field="runs", expected="two runs for each pair"
        )
    order = in_turn(SIDES, len(runs) // 2)
    pairs = []
    for number, at in enumerate(range(0, len(runs), 2), start=1):
        first, second = runs[at : at + 2]
        if order[at] == "holder":
            first, second = second, first
        pairs.append(Pair(number, challenger=first, holder=second))
    return tuple(pairs)


def _read_run(benchmark: Benchmark, run: ReplayRun) -> DuelRun:
    reached = evaluation_at_target(benchmark, run)
    if reached is None or run.tta_seconds is None:
        return DuelRun(run.index, run.seed, "void" if is_excused(run) else "missed")
    # Nothing shorter was measured, and a ratio needs a time above zero.
    seconds = max(run.tta_seconds, SHORTEST_SECONDS)
    epochs = reached.epoch if reached.epoch and reached.epoch > 0 else None
    if run.evaluations[0].predictions_sha256 is not None:  # A package counts its evaluations.
        epochs = None
    return DuelRun(run.index, run.seed, "reached", seconds, epochs)


@dataclass(frozen=True)
class Duel:
    """Result of a duel.

    `time`, `epochs` and `pace` (seconds per epoch) compare the challenger with the holder over the
    pairs in which both reached the target; the ratio of times is that of epochs times that of
    paces. `ahead` is the side that is rather the faster one, and `p_value` the one-sided p-value of
    its being no faster, by the test that decided: "paired_t", or "count" where a side missed the
    target and only wins were counted. `pairs_needed` is about how many pairs would separate the
    sides if they differ as much as they did here; None if they are separated, if nothing is to
    separate, or if no count of pairs is worth naming.
    """

    pairs: tuple[Pair, ...]
    outcome: DuelOutcome
    test: Literal["paired_t", "count"] | None
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
    """Judge which side reaches the target sooner, or that it cannot be told.

    Each side is tested one-sided at alpha / 2 for being the faster one. A side that always reached
    is tested by Student's t on the log ratios of the pairs in which the other did too, as long as
    those are at least half of all pairs. A run that missed the target is infinite and has no mean,
    and to leave it out would reward settings that are fast when they work at all: so a side that
    missed any is judged by its count of wins, a missed run being a lost pair. A void run decides
    nothing.
    """
    time, epochs, pace = _gaps(pairs)
    tests = {side: _test(side, pairs, time) for side in SIDES}
    known = {side: test for side, test in tests.items() if test is not None}
    winner = min(known, key=lambda side: known[side][1], default=None)
    if winner is None:
        return Duel(tuple(pairs), "inconclusive", None, None, None, time, epochs, pace, None)
    test, p_value = known[winner]
    outcome: DuelOutcome = "not_separable"
    if p_value <= alpha / 2:
        outcome = "challenger_faster" if winner == "challenger" else "holder_faster"
    needed = _pairs_needed(pairs, time, alpha) if outcome == "not_separable" else None
    return Duel(tuple(pairs), outcome, test, winner, p_value, time, epochs, pace, needed)


def p_challenger_no_faster(duel: Duel) -> float | None:
    """The one-sided p-value of the challenger being no faster; None where nothing tells it.

    Of Student's t on the log ratios of the pairs; of its count of wins where it missed the target.
    """
    test = _test("challenger", duel.pairs, duel.time)
    return None if test is None else test[1]


def _test(
    side: Side, pairs: Sequence[Pair], time: Gap | None
) -> tuple[Literal["paired_t", "count"], float] | None:
    """The test of one side for being the faster, and its one-sided p-value."""
    always_reached = not any(pair.missed(side) for pair in pairs)
    if always_reached and time is not None and 2 * time.pairs >= len(pairs):
        return "paired_t", time.p_less if side == "challenger" else time.p_more
    if not any(pair.missed(each) for pair in pairs for each in SIDES):
        return None  # Too few pairs for a spread, and nothing missed to count.
    decided = [pair.winner for pair in pairs if pair.winner is not None]
    if not decided:
        return None
    return "count", p_of_so_many_wins(decided.count(side), of=len(decided))


def _gaps(pairs: Sequence[Pair]) -> tuple[Gap | None, Gap | None, Gap | None]:
    """Times, epochs and paces of the pairs in which both sides reached the target."""
    known = [run.epochs for pair in pairs for run in (pair.challenger, pair.holder) if run.epochs]
    return (
        _gap(pairs, lambda run: run.seconds, quantum=SHORTEST_SECONDS),
        _gap(pairs, lambda run: run.epochs, quantum=EPOCHS_BETWEEN_EVALUATIONS),
        _gap(pairs, lambda run: run.pace, quantum=SHORTEST_SECONDS / min(known, default=1.0)),
    )


def _gap(
    pairs: Sequence[Pair], figure: Callable[[DuelRun], float | None], *, quantum: float
) -> Gap | None:
    both = (_both(figure(pair.challenger), figure(pair.holder)) for pair in pairs)
    return paired_gap([figures for figures in both if figures is not None], quantum=quantum)


def _both(first: float | None, second: float | None) -> tuple[float, float] | None:
    return None if first is None or second is None else (first, second)


def _pairs_needed(pairs: Sequence[Pair], time: Gap | None, alpha: float) -> int | None:
    if any(pair.missed(side) for pair in pairs for side in SIDES):
        return FEWEST_PAIRS_TO_COUNT if len(pairs) < FEWEST_PAIRS_TO_COUNT else None
    return None if time is None else pairs_needed(time, alpha=alpha)

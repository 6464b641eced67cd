"""Ranking: one order for JSON, CSV and pages. Only evidence is numbered."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from finishline.rules.ranking import KIND_OF_METRIC, POSSIBLE, Check, Evidence, Metric
from finishline.rules.statistics.aggregate import Spread, variance_of_mean
from finishline.rules.statistics.gaps import Gap

FIRST_METRIC: dict[str, Metric] = {"train": "tta", "inference": "latency"}
FIGURE_OF_METRIC: dict[Metric, str] = {
    "tta": "tta_seconds",
    "cost": "cost_usd",
    "energy": "energy_joules",
    "latency": "latency_ms",
    "inference_cost": "cost_usd_per_10000",
}
IMPOSSIBLE = {
    "energy_joules": "impossible energy",
    "tta_seconds": "impossible time",
    "cost_usd": "impossible cost",
    "latency_ms": "impossible latency",
    "cost_usd_per_10000": "impossible cost",
}
# Which evidence is numbered, unless the benchmark's file says otherwise.
NUMBERED: tuple[str, ...] = ("measured", "published")
NO_TIME = "did not reach the target"
BREAKS_A_RULE = "breaks a rule of the benchmark"
NOT_NUMBERED: dict[str | None, str] = {
    None: "not measured here",
    "none": "claimed: not measured here",
    "queued": "claimed: its replay is queued",
    "running": "claimed: its replay is running",
    "epochs_agree": "claimed: the epochs agree, the time was not measured",
    "undecided": "claimed: its verification could not decide",
}
# A verified claim is undecided for this reason alone (`check_of`).
NOT_CALIBRATED = "claimed, undecided: not calibrated at its batch size"
# Rows of fewer runs, or fewer different counts of epochs, share no number.
FEWEST_RUNS_TO_SHARE = 5
FEWEST_VALUES_TO_SHARE = 3
Status = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]


class Standing(NamedTuple):
    """Input of the ranking for one submission. Absent figures are None.

    `cost_usd` is the cost of a training, `cost_usd_per_10000` that of 10,000 items of inference. A
    `withdrawn` one never ranks. `evidence` decides whether it is numbered, and `held_back` says why
    one that would be is not yet. A `duplicate_of` another has no rank.
    `price_unranked` is why the price of its cost is shown and ranks
    nothing, for example because its submitter states it. `energy_joules` is as a worker measured
    it. `division` and `pool_id`, the configuration of a measured one, choose the submissions ranked
    together; the order itself does not depend on them.
    """

    submission_id: str
    status: Status
    submitted_at: str
    tta_seconds: float | None
    cost_usd: float | None
    latency_ms: float | None
    eligible: bool
    cost_usd_per_10000: float | None = None
    withdrawn: bool = False
    evidence: Evidence = "measured"
    check: Check | None = None
    held_back: str | None = None
    duplicate_of: str | None = None
    price_unranked: str | None = None
    division: str = ""
    pool_id: str | None = None
    energy_joules: float | None = None


@dataclass(frozen=True)
class Ranked:
    """A submission's place: `rank` from 1, equal values share it (`tied`).

    `rank` is None for a submission that is not numbered, and `unranked_reason` says why. One that
    is claimed has a `provisional_rank`: how many rows are faster, measured or claimed, plus one.
    """

    submission_id: str
    rank: int | None
    tied: bool
    value: float | None
    unranked_reason: str | None
    provisional_rank: int | None = None


@dataclass(frozen=True)
class Order:
    """A board's order, into which a changed submission can be put without sorting the others again.

    `ranked` holds (value, when submitted, id) of numbered rows, `claimed` (value, when submitted,
    id, reason) of those with a provisional rank, `unranked` (when submitted, id, value, reason).
    """

    metric: Metric
    ranked: tuple[tuple[float, str, str], ...]
    claimed: tuple[tuple[float, str, str, str], ...]
    unranked: tuple[tuple[str, str, float | None, str], ...]
    numbers: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    def _parts(self) -> "_Lists":
        return _Lists(self.ranked, self.claimed, self.unranked)

    def place(self, position: int) -> Ranked:
        """Row at a position, counted from 0, in constant time but for ties."""
        if position < len(self.ranked):
            return self._ranked(position)
        position -= len(self.ranked)
        if position < len(self.claimed):
            value, _, submission_id, reason = self.claimed[position]
            return Ranked(submission_id, None, False, value, reason, self._provisional(value))
        _, submission_id, unranked_value, reason = self.unranked[position - len(self.claimed)]
        return Ranked(submission_id, None, False, unranked_value, reason)

    def _ranked(self, position: int) -> Ranked:
        value, _, submission_id = self.ranked[position]
        first = position
        if position > 0 and self.ranked[position - 1][0] == value:
            first = bisect_left(self.ranked, value, hi=position, key=_value)
        last = position + 1 == len(self.ranked) or self.ranked[position + 1][0] != value
        return Ranked(submission_id, first + 1, first < position or not last, value, None)

    def position(self, standing: Standing) -> int:
        """Position of a submission in this order, counted from 0."""
        parts = self._parts()
        which, key = parts.find(standing, metric=self.metric, numbers=self.numbers)
        before = 0
        for part in parts:
            if part is which:
                break
            before += len(part)
        return before + bisect_left(which, key)

    def _provisional(self, value: float) -> int:
        """One more than all faster rows, numbered or claimed."""
        parts = (self.ranked, self.claimed)
        return 1 + sum(bisect_left(rows, value, key=_value) for rows in parts)

    def changed(self, *, gone: Iterable[Standing], come: Iterable[Standing]) -> "Order":
        """The order without some submissions of it, as they stood in it, and with others."""
        lists = _Lists(*map(list, self._parts()))
        for standing in gone:
            which, key = lists.find(standing, metric=self.metric, numbers=self.numbers)
            del which[bisect_left(which, key)]
        for standing in come:
            which, key = lists.find(standing, metric=self.metric, numbers=self.numbers)
            which.insert(bisect_left(which, key), key)
        return lists.order(self.metric, self.numbers)


def order_of(
    standings: Iterable[Standing], *, metric: Metric, numbers: tuple[str, ...] | None = None
) -> Order:
    """The board's order: numbered rows, claims, then those without rank.

    `numbers` names the evidence that is numbered. The smallest value is first; equal values and
    unranked submissions stand in the order they were submitted.
    """
    lists = _Lists([], [], [])
    for standing in standings:
        which, key = lists.find(standing, metric=metric, numbers=numbers)
        which.append(key)
    for each in lists:
        each.sort()
    return lists.order(metric, numbers)


def rank(standings: Sequence[Standing], *, metric: Metric) -> list[Ranked]:
    """Places of all entries in the board's order; equal values share a rank.

    A rank counts how many are strictly better, plus one ("1, 2, 2, 4").
    """
    order = order_of(standings, metric=metric)
    return [order.place(position) for position in range(len(order))]


class _Lists(NamedTuple):
    ranked: Any
    claimed: Any
    unranked: Any

    def find(
        self, standing: Standing, *, metric: Metric, numbers: tuple[str, ...] | None
    ) -> tuple[Any, tuple[Any, ...]]:
        """List of a submission, and its sort key in that list.

        No two share an id, so nothing after it is ever compared.
        """
        value, reason = metric_value(standing, metric=metric), why_unranked(standing, metric=metric)
        if reason is not None:
            return self.unranked, (standing.submitted_at, standing.submission_id, value, reason)
        key = (value, standing.submitted_at, standing.submission_id)
        waits = why_not_numbered(standing, numbers=numbers)
        if waits is None:
            return self.ranked, key
        return self.claimed, (*key, waits)

    def order(self, metric: Metric, numbers: tuple[str, ...] | None) -> Order:
        """The finished order."""
        ranked, claimed, unranked = map(tuple, self)
        return Order(metric, ranked, claimed, unranked, numbers)


def why_not_numbered(standing: Standing, *, numbers: tuple[str, ...] | None = None) -> str | None:
    """Reason why a row with a figure has no number, or None if it has one."""
    if standing.held_back is not None:
        return standing.held_back
    if standing.evidence in (NUMBERED if numbers is None else numbers):
        return None
    if standing.evidence == "claimed":
        uncalibrated = standing.check == "undecided" and standing.status == "verified"
        return NOT_CALIBRATED if uncalibrated else NOT_NUMBERED[standing.check]
    return f"{standing.evidence}: not numbered on this board"


def _value(key: tuple[Any, ...]) -> float:
    value: float = key[0]
    return value


def metric_value(standing: Standing, *, metric: Metric) -> float | None:
    """The figure a board of this metric orders by."""
    figure: float | None = getattr(standing, FIGURE_OF_METRIC[metric])
    return figure


def why_unranked(standing: Standing, *, metric: Metric) -> str | None:
    """One sentence on why a submission is not ranked, or None if it is."""
    if standing.withdrawn:
        return "withdrawn"
    if standing.duplicate_of is not None:
        return f"a duplicate of {standing.duplicate_of}"
    if standing.status == "rejected" or standing.check == "contradicted":
        return "contradicted by its verification"
    inference = KIND_OF_METRIC[metric] == "inference"
    if not standing.eligible:
        # All that is asked of an inference is that its model meets the quality target.
        return "did not reach the target" if inference else BREAKS_A_RULE
    if metric_value(standing, metric=metric) is not None:
        if metric == "cost" and standing.price_unranked is not None:
            return standing.price_unranked
        return _why_impossible(standing, metric=metric)
    if inference:
        return "no latency was measured" if metric == "latency" else "states no cost"
    if standing.tta_seconds is None:
        return NO_TIME
    if metric == "energy":
        return "no energy was measured"
    return "states no price"


def why_entry_unranked(check: str | None, reason: str) -> str:
    """Reason of `why_unranked` in the words for a training package, which states no time."""
    if check == "contradicted":
        return "its package did not hold the target"
    if reason != NO_TIME:
        return reason
    words = {"queued": "its measurement is queued", "running": "it is being measured"}
    return words.get(check or "none", "not measured")


def _why_impossible(standing: Standing, *, metric: Metric) -> str | None:
    """Reason why a figure is impossible, so that it beats nobody; a cost rests on its time."""
    ranked_by = FIGURE_OF_METRIC[metric]
    for name in ("tta_seconds", ranked_by) if metric == "cost" else (ranked_by,):
        figure, (lowest, highest) = getattr(standing, name), POSSIBLE[name]
        if figure is not None and not lowest <= figure <= highest:
            return IMPOSSIBLE[name]
    return None


@dataclass(frozen=True)
class RankedTime:
    """A numbered row, its figure, and the runs behind it.

    So many of the runs are `dropped` at each end. `convergence_values` counts the distinct epochs
    (or samples) to the target of its runs.
    """

    submission_id: str
    rank: int
    figure: float
    runs: int
    dropped: int
    spread: Spread | None
    convergence_values: int


@dataclass(frozen=True)
class Separated:
    """A row's number, and the better row that these runs cannot tell it from.

    `number` is the rank, or the better row's where both share it; `shares` says that another row
    has the same. `not_separated_from` is the number of the first row of the stretch, None where the
    runs tell the two apart or nothing is known of their spread; a gap below `visible_gap_percent`
    could not have been seen.
    """

    submission_id: str
    number: int
    not_separated_from: int | None
    visible_gap_percent: float | None
    shares: bool = False


def separate(rows: Iterable[RankedTime]) -> Iterator[Separated]:
    """Compare numbered rows, given in order, with the first row of their stretch, one by one.

    Going down the board, a row that differs significantly from the first row of the stretch above
    leads the next. A number is shared only where both have five runs or more and at least three
    distinct convergence values: fewer, noisier runs must not earn the better rank. Below a row of
    the stretch that has a number of its own, no row shares the first one's.
    """
    last: Separated | None = None
    for found in _in_turn(rows):
        shares = last is not None and last.number == found.number
        if last is not None:
            yield replace(last, shares=last.shares or shares)
        last = replace(found, shares=shares)
    if last is not None:
        yield last


def _in_turn(rows: Iterable[RankedTime]) -> Iterator[Separated]:
    shares = False
    leader: RankedTime | None = None
    for row in rows:
        gap = None if leader is None else visible_gap(leader, row)
        if leader is None or gap is None or row.figure >= leader.figure * (1 + gap):
            leader, shares = row, _may_share(row)
            yield Separated(row.submission_id, row.rank, None, None)
            continue
        shares = shares and _may_share(row)
        number = leader.rank if shares else row.rank
        yield Separated(row.submission_id, number, leader.rank, gap * 100.0)


def visible_gap(first: RankedTime, second: RankedTime) -> float | None:
    """The least relative gap that the runs of two rows can show at 95 %; None without a spread."""
    one = variance_of_mean(first.runs, dropped=first.dropped)
    other = variance_of_mean(second.runs, dropped=second.dropped)
    if first.spread is None or second.spread is None or one is None or other is None:
        return None
    variance = first.spread.stdev**2 * one + second.spread.stdev**2 * other
    freedom = min(first.spread.degrees_of_freedom, second.spread.degrees_of_freedom)
    return Gap(0.0, math.sqrt(variance), freedom).high - 1


def _may_share(row: RankedTime) -> bool:
    return row.runs >= FEWEST_RUNS_TO_SHARE and row.convergence_values >= FEWEST_VALUES_TO_SHARE

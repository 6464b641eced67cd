"""Ranking: one order for JSON, CSV and pages. Only evidence is numbered."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

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
COST_IS_CLAIMED = "claimed: its latency was measured, its cost was not"
FASTER_ROW = "another row of its submitter ranks"
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
    one that would be is not yet. A `duplicate_of` another has no rank. `price_unranked` is why the
    price of its cost ranks nothing. `energy_joules` is as a worker measured it. `hardware_class`
    measured its time. `submitter` is a user, or an organisation as a negative number. `division`
    chooses the submissions ranked together.
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
    hardware_class: str | None = None
    submitter: int | None = None
    energy_joules: float | None = None


class Ranked(NamedTuple):
    """A submission's place: `rank` from 1, equal values share it (`tied`).

    `rank` is None for a submission that is not numbered, and `unranked_reason` says why.
    """

    submission_id: str
    rank: int | None
    tied: bool
    value: float | None
    unranked_reason: str | None


class Order:
    """A board's order: numbered rows, others with a figure, then those without rank.

    The first `listed` rows are those with a figure.
    """

    def __init__(self, metric: Metric, rows: Sequence[Ranked], *, listed: int) -> None:
        self.metric = metric
        self.rows = tuple(rows)
        self.numbered = sum(row.rank is not None for row in rows)
        self.listed = listed
        self._positions = {row.submission_id: at for at, row in enumerate(rows)}

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, position: int) -> Ranked:
        """Row at a position, counted from 0."""
        return self.rows[position]

    def position(self, submission_id: str) -> int:
        """Position of a submission, counted from 0."""
        return self._positions[submission_id]


def order_of(
    standings: Iterable[Standing],
    *,
    metric: Metric,
    hardware_class: str | None = None,
    holder: str | None = None,
) -> Order:
    """The board's order: the holder of first place, then the others by their figure.

    Measured and published figures are numbered. Of measured times those of one `hardware_class`
    are, and one row of each submitter, the fastest. Equal values share a rank, which counts how
    many are strictly better, plus one ("1, 2, 2, 4"). They and unranked submissions stand in the
    order they were submitted.
    """
    figures: list[tuple[float, str, str, Standing]] = []
    unranked: list[tuple[str, str, float | None, str]] = []
    for one in standings:
        value, why = metric_value(one, metric=metric), why_unranked(one, metric=metric)
        if why is not None or value is None:
            unranked.append((one.submitted_at, one.submission_id, value, why or NO_TIME))
        else:
            figures.append((value, one.submitted_at, one.submission_id, one))
    figures.sort(key=lambda each: (each[2] != holder, *each[:3]))
    numbered: list[Ranked] = []
    listed: list[tuple[bool, Ranked]] = []
    ranked_submitters: set[int | None] = {None}
    for value, _, submission_id, one in figures:
        waits = why_not_numbered(one, metric=metric)
        if waits is None and hardware_class is not None and one.evidence == "measured":
            waits = _why_elsewhere(one, hardware_class, ranked_submitters)
            ranked_submitters |= {one.submitter} if waits is None else set()
        if waits is not None:
            row = Ranked(submission_id, None, False, value, waits)
            listed.append((one.evidence == "claimed" or waits == COST_IS_CLAIMED, row))
            continue
        same = numbered[-1] if numbered and numbered[-1].value == value else None
        if same is not None and same.submission_id != holder:
            numbered[-1] = same._replace(tied=True)
            numbered.append(Ranked(submission_id, same.rank, True, value, None))
        else:
            numbered.append(Ranked(submission_id, len(numbered) + 1, False, value, None))
    unranked.sort()
    rest = [Ranked(name, None, False, value, why) for _, name, value, why in unranked]
    listed.sort(key=lambda each: each[0])  # Measured elsewhere first, then the claims.
    rows = [*numbered, *(row for _, row in listed)]
    return Order(metric, [*rows, *rest], listed=len(rows))


def _why_elsewhere(
    one: Standing, hardware_class: str, ranked_submitters: set[int | None]
) -> str | None:
    if one.hardware_class != hardware_class:
        return f"ranked on the board of {one.hardware_class}"
    is_second = one.submitter is not None and one.submitter in ranked_submitters
    return FASTER_ROW if is_second else None


def why_not_numbered(standing: Standing, *, metric: Metric) -> str | None:
    """Reason why a row with a figure has no number, or None if it has one."""
    if metric == "inference_cost" and standing.evidence == "measured":
        return COST_IS_CLAIMED
    if standing.held_back is not None or standing.evidence != "claimed":
        return standing.held_back
    uncalibrated = standing.check == "undecided" and standing.status == "verified"
    return NOT_CALIBRATED if uncalibrated else NOT_NUMBERED[standing.check]


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
    """Reason of `why_unranked` in the words for code and the reference, which claim no time."""
    if check == "contradicted":
        return "it did not hold the target"
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
    (or samples) to the target of the runs of a published row. A measured row has none: it shares no
    number.
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
        if leader is None or gap is None or _are_apart(row.figure, leader.figure, gap):
            leader, shares = row, _may_share(row)
            yield Separated(row.submission_id, row.rank, None, None)
            continue
        shares = shares and _may_share(row)
        number = leader.rank if shares else row.rank
        yield Separated(row.submission_id, number, leader.rank, gap * 100.0)


def _are_apart(one: float, other: float, gap: float) -> bool:
    """Whether two figures differ by the gap. A row below the holder may have a lower time."""
    return max(one, other) >= min(one, other) * (1 + gap)


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

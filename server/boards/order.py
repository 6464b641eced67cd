"""Order a board: who has a rank, why others have none, and which times are too close."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from finishline.rules.ranking import KIND_OF_METRIC, POSSIBLE, Check, Evidence, Metric
from finishline.rules.statistics.aggregate import Spread, variance_of_mean
from finishline.rules.statistics.gaps import TIME, Gap, Score
from server.base.standing import Status

FIRST_METRIC: dict[str, Metric] = {"train": "tta", "inference": "latency"}
FIGURE_OF_METRIC: dict[Metric, str] = {
    "tta": "tta_seconds",
    "quality": "quality",
    "cost": "cost_usd",
    "energy": "energy_joules",
    "latency": "latency_ms",
    "inference_cost": "cost_usd_per_10000",
}
IMPOSSIBLE = {
    "energy_joules": "impossible energy",
    "tta_seconds": "impossible time",
    "quality": "impossible quality",
    "cost_usd": "impossible cost",
    "latency_ms": "impossible latency",
    "cost_usd_per_10000": "impossible cost",
}
NO_TIME = "did not reach the target"
NO_QUALITY = "no evaluation within the budget"
BREAKS_A_RULE = "breaks a rule"
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
# The only reason why a verified claim is undecided.
NOT_CALIBRATED = "claimed, undecided: not calibrated at its batch size"
# Rows of fewer runs, or fewer different counts of epochs, share no number.
FEWEST_RUNS_TO_SHARE = 5
FEWEST_VALUES_TO_SHARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The facts behind the place of a submission. Absent figures are None.

    `cost_usd` is the cost of a training, `cost_usd_per_10000` of 10,000 items of inference.
    `held_back` explains a missing number, `price_unranked` an unranked price, and `broken` is the
    first broken rule. `hardware_class` is the class that measured it. `submitter` is a user's id,
    or an organisation's as a negative number.
    """

    submission_id: str
    status: Status
    submitted_at: str
    tta_seconds: float | None
    cost_usd: float | None = None
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
    broken: str | None = None
    hardware_class: str | None = None
    submitter: int | None = None
    energy_joules: float | None = None
    quality: float | None = None


class Place(NamedTuple):
    """A row's place: `rank` from 1, which equal values share (`tied`), or `unranked_reason`.

    `not_separated_from` is the number of a better row with indistinguishable runs.
    `visible_gap_percent` is the least gap that the runs can show.
    """

    submission_id: str
    rank: int | None
    tied: bool
    value: float | None
    unranked_reason: str | None
    not_separated_from: int | None = None
    visible_gap_percent: float | None = None


class Order:
    """A board's order: `numbered` rows, then other `listed` rows with a figure, then the rest."""

    def __init__(self, metric: Metric, places: Sequence[Place], *, listed: int) -> None:
        self.metric = metric
        self.places = tuple(places)
        self.numbered = sum(place.rank is not None for place in places)
        self.listed = listed
        self._positions = {place.submission_id: at for at, place in enumerate(places)}

    def __len__(self) -> int:
        return len(self.places)

    def position(self, submission_id: str) -> int:
        """Return the position of a submission, counted from 0."""
        return self._positions[submission_id]


def order_of(
    rows: Iterable[Row],
    *,
    metric: Metric,
    hardware_class: str | None = None,
    holder: str | None = None,
    score: Score = TIME,
) -> Order:
    """Order a board: the holder of first place, then the others by their figure.

    Measured and published figures are numbered. Measured times are numbered on one
    `hardware_class`, with the fastest row of each submitter. Equal values share a rank, which is
    one more than the strictly better rows ("1, 2, 2, 4"). Equal and unranked rows are in the order
    of their submission. `score` says which quality is better.
    """
    figures: list[tuple[float, str, str, Row]] = []
    unranked: list[tuple[str, str, float | None, str]] = []
    for row in rows:
        value, why = metric_value(row, metric=metric), why_unranked(row, metric=metric)
        if why is not None or value is None:
            unranked.append((row.submitted_at, row.submission_id, value, why or NO_TIME))
        else:
            figures.append((value, row.submitted_at, row.submission_id, row))
    cost = score.cost if metric == "quality" else float
    figures.sort(key=lambda each: (each[2] != holder, cost(each[0]), *each[1:3]))
    numbered: list[Place] = []
    measured: list[Place] = []
    claimed: list[Place] = []
    ranked_submitters: set[int | None] = {None}
    for value, _, submission_id, row in figures:
        waits = why_not_numbered(row, metric=metric)
        if waits is None and hardware_class is not None and row.evidence == "measured":
            waits = _why_elsewhere(row, hardware_class, ranked_submitters)
            ranked_submitters |= {row.submitter} if waits is None else set()
        if waits is not None:
            is_claim = row.evidence == "claimed" or waits == COST_IS_CLAIMED
            unnumbered = Place(submission_id, None, False, value, waits)
            (claimed if is_claim else measured).append(unnumbered)
            continue
        same = numbered[-1] if numbered and numbered[-1].value == value else None
        if same is not None and same.submission_id != holder:
            numbered[-1] = same._replace(tied=True)
            numbered.append(Place(submission_id, same.rank, True, value, None))
        else:
            numbered.append(Place(submission_id, len(numbered) + 1, False, value, None))
    unranked.sort()
    rest = [Place(name, None, False, value, why) for _, name, value, why in unranked]
    listed = [*numbered, *measured, *claimed]
    return Order(metric, [*listed, *rest], listed=len(listed))


def _why_elsewhere(row: Row, hardware_class: str, ranked_submitters: set[int | None]) -> str | None:
    if row.hardware_class != hardware_class:
        return f"ranked on the board of {row.hardware_class}"
    is_second = row.submitter is not None and row.submitter in ranked_submitters
    return FASTER_ROW if is_second else None


def why_not_numbered(row: Row, *, metric: Metric) -> str | None:
    """Say why a row with a figure lacks a number."""
    if metric == "inference_cost" and row.evidence == "measured":
        return COST_IS_CLAIMED
    if row.held_back is not None or row.evidence != "claimed":
        return row.held_back
    uncalibrated = row.check == "undecided" and row.status == "verified"
    return NOT_CALIBRATED if uncalibrated else NOT_NUMBERED[row.check]


def metric_value(row: Row, *, metric: Metric) -> float | None:
    """Return the figure for the order of a board by this metric."""
    figure: float | None = getattr(row, FIGURE_OF_METRIC[metric])
    return figure


def why_unranked(row: Row, *, metric: Metric) -> str | None:
    """Say in one sentence why a submission is unranked."""
    if row.withdrawn:
        return "withdrawn"
    if row.duplicate_of is not None:
        return f"a duplicate of {row.duplicate_of}"
    if row.status == "rejected" or row.check == "contradicted":
        return "contradicted by its verification"
    inference = KIND_OF_METRIC[metric] == "inference"
    if not row.eligible:
        # An inference is eligible if its model meets the quality target.
        return NO_TIME if inference else f"{BREAKS_A_RULE}: {row.broken}"
    if metric_value(row, metric=metric) is not None:
        if metric == "cost" and row.price_unranked is not None:
            return row.price_unranked
        return _why_impossible(row, metric=metric)
    if inference:
        return "no latency was measured" if metric == "latency" else "states no cost"
    if metric == "quality":
        return NO_QUALITY
    if row.tta_seconds is None:
        return NO_TIME
    return "no energy was measured" if metric == "energy" else "states no price"


def why_entry_unranked(check: str | None, reason: str) -> str:
    """Word a reason of `why_unranked` for code and the reference."""
    if check == "contradicted":
        return "it did not hold the target"
    if reason not in (NO_TIME, NO_QUALITY):
        return reason
    words = {"queued": "its measurement is queued", "running": "it is being measured"}
    return words.get(check or "none", "not measured")


def _why_impossible(row: Row, *, metric: Metric) -> str | None:
    """Check a cost's time too: an impossible figure must beat nobody."""
    ranked_by = FIGURE_OF_METRIC[metric]
    for name in ("tta_seconds", ranked_by) if metric == "cost" else (ranked_by,):
        figure, (lowest, highest) = getattr(row, name), POSSIBLE[name]
        if figure is not None and not lowest <= figure <= highest:
            return IMPOSSIBLE[name]
    return None


@dataclass(frozen=True)
class RunsBehind:
    """The runs behind a time, how many are `dropped` at each end, and their `spread`.

    `convergence_values` counts the distinct epochs (or samples) to the target of a published row. A
    measured row has 0, and shares no number.
    """

    runs: int
    dropped: int
    spread: Spread | None
    convergence_values: int
    score: Score = TIME

    @property
    def may_share(self) -> bool:
        """Whether the runs are enough to share the number of a better row."""
        return (
            self.runs >= FEWEST_RUNS_TO_SHARE and self.convergence_values >= FEWEST_VALUES_TO_SHARE
        )


def separate(rows: Iterable[tuple[Place, RunsBehind]]) -> Iterator[Place]:
    """Compare numbered rows, given in order, with the first row of their stretch, one by one.

    A row that differs significantly from the first row of the stretch above it leads the next
    stretch. A number is shared only if both rows have five runs or more and at least three distinct
    convergence values, because fewer, noisier runs must not earn the better rank. Below a row with
    its own number, the rest of the stretch doesn't share the first row's.
    """
    last: Place | None = None
    for place in _in_stretches(rows):
        shares = last is not None and last.rank == place.rank
        if last is not None:
            yield last._replace(tied=last.tied or shares)
        last = place._replace(tied=place.tied or shares)
    if last is not None:
        yield last


def _in_stretches(rows: Iterable[tuple[Place, RunsBehind]]) -> Iterator[Place]:
    shares = False
    first: tuple[Place, RunsBehind] | None = None
    for place, behind in rows:
        gap = None if first is None else visible_gap(first[1], behind)
        # A row below the holder may have a lower time.
        low, high = sorted((place.value or 0.0, 0.0 if first is None else first[0].value or 0.0))
        by_time = behind.score.by == "time"
        if first is None or gap is None or high >= (low * (1 + gap) if by_time else low + gap):
            first, shares = (place, behind), behind.may_share
            yield place
            continue
        shares = shares and behind.may_share
        yield place._replace(
            rank=first[0].rank if shares else place.rank,
            not_separated_from=first[0].rank,
            visible_gap_percent=gap * 100.0 if by_time else None,
        )


def visible_gap(first: RunsBehind, second: RunsBehind) -> float | None:
    """Return the least visible gap at 95 %: relative for times, absolute for qualities."""
    one = variance_of_mean(first.runs, dropped=first.dropped)
    other = variance_of_mean(second.runs, dropped=second.dropped)
    if first.spread is None or second.spread is None or one is None or other is None:
        return None
    variance = first.spread.stdev**2 * one + second.spread.stdev**2 * other
    freedom = min(first.spread.degrees_of_freedom, second.spread.degrees_of_freedom)
    if first.score.by == "quality":
        return first.score.difference(0.0, math.sqrt(variance), freedom).high
    return Gap(0.0, math.sqrt(variance), freedom).high - 1

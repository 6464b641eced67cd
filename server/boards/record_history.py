"""Record history: a new record must beat the holder by more than chance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from finishline.rules.statistics.gaps import ALPHA, log_times, welch


@dataclass(frozen=True)
class Contender:
    """A published submission that may hold the record of its benchmark and division.

    `runs` holds the seconds of its runs that reached the target, on the scale of `tta_seconds`.
    Dates are ordered as text.
    """

    submission_id: str
    date: str
    tta_seconds: float
    runs: Sequence[float]


@dataclass(frozen=True)
class Record:
    """A submission that took the record.

    `beaten` is the holder before it, `margin_percent` by how much its time is below that one's, and
    `p_value` the one-sided p-value of being no faster; all None for the first holder, and the
    p-value also where it was not tested. `verification_id` is the head-to-head that decided it. One
    that `ended` was withdrawn or retired. One that `returned` took the place of such.
    """

    submission_id: str
    date: str
    tta_seconds: float
    single_run: bool
    beaten: str | None
    margin_percent: float | None
    p_value: float | None
    verification_id: str | None = None
    ended: str | None = None
    returned: bool = False


@dataclass(frozen=True)
class NoRecord:
    """A submission with a lower time than the holder of its day, and why it took no record."""

    submission_id: str
    date: str
    tta_seconds: float
    holder: str
    p_value: float | None
    reason: str


@dataclass(frozen=True)
class RecordHistory:
    """The records in the order they were set, and the lower times that were none."""

    records: tuple[Record, ...]
    not_records: tuple[NoRecord, ...]


def record_history(contenders: Iterable[Contender]) -> RecordHistory:
    """Walk the submissions in time order; each may take the record from its holder.

    The first one holds it. From then on a lower time takes
    it only if Welch's one-sided t-test on log times finds it faster with p < 0.05. A single run
    cannot be tested, so it takes no record from a holder of several runs; a holder of a single run
    has no scatter to hide behind and loses the record to any lower time. Results of one date, such
    as those of a round, go by lowest time first (`in_time_order`).
    """
    records: list[Record] = []
    not_records: list[NoRecord] = []
    holder: Contender | None = None
    for contender in in_time_order(contenders):
        judged = _judge(contender, holder)
        if isinstance(judged, Record):
            records.append(judged)
            holder = contender
        elif judged is not None:
            not_records.append(judged)
    return RecordHistory(tuple(records), tuple(not_records))


def in_time_order(contenders: Iterable[Contender]) -> list[Contender]:
    """Sort by date; within a date by the lowest time, and equal times by the smaller id."""
    return sorted(contenders, key=lambda each: (each.date, each.tta_seconds, each.submission_id))


def _judge(contender: Contender, holder: Contender | None) -> Record | NoRecord | None:
    if holder is None:
        return _record(contender, None, p_value=None)
    if contender.tta_seconds >= holder.tta_seconds:
        return None
    if len(holder.runs) < 2:
        return _record(contender, holder, p_value=None)
    p_value = _p_no_faster(contender, holder)
    if p_value is not None and p_value < ALPHA:
        return _record(contender, holder, p_value=p_value)
    why = (
        "a single run is too few to compare with the holder's runs"
        if p_value is None
        else "not significantly faster than the holder: "
        f"one-sided p = {p_value:.2g}, must be below {ALPHA:g}"
    )
    return NoRecord(
        contender.submission_id,
        contender.date,
        contender.tta_seconds,
        holder.submission_id,
        p_value,
        why,
    )


def _record(contender: Contender, holder: Contender | None, *, p_value: float | None) -> Record:
    before = None if holder is None else holder.tta_seconds
    return Record(
        submission_id=contender.submission_id,
        date=contender.date,
        tta_seconds=contender.tta_seconds,
        single_run=len(contender.runs) < 2,
        beaten=None if holder is None else holder.submission_id,
        margin_percent=None if not before else (1 - contender.tta_seconds / before) * 100.0,
        p_value=p_value,
    )


def _p_no_faster(contender: Contender, holder: Contender) -> float | None:
    gap = welch(log_times(contender.runs), log_times(holder.runs))
    return None if gap is None else gap.p_less

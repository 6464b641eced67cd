"""Record history: a new record must beat the holder by more than chance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from finishline.rules.statistics.comparison import ALPHA, log_gap, log_times

DUEL_ALPHA = 0.01
AGAIN_AFTER = timedelta(days=30)  # Between a lost duel and the same one again.
ONE_OWNER = (
    "measured only by one owner's workers: a record needs an organiser's worker "
    "or workers of two owners"
)


@dataclass(frozen=True)
class RecordDuel:
    """A finished duel of ten pairs against the `holder` (a pool), and its verdict's date.

    `p_value` is one-sided, of the challenger being no faster.
    """

    duel_id: str
    holder: str
    date: str
    p_value: float


@dataclass(frozen=True)
class Contender:
    """A submission that may hold the record of its benchmark and division.

    `runs` holds the seconds of the runs that reached the target, on the scale of `tta_seconds`.
    `eligible` is False for one that breaks a rule. Dates are ordered as text. `fresh` says that its
    runs were sealed after it was nominated for a place at the top. `pool` is the pool that measured
    it, `duels` its duels of ten pairs against holders. Two with the same `duels_on` can have a
    duel; None can have none. `attested` is False if one owner's workers alone measured it.
    """

    submission_id: str
    date: str
    tta_seconds: float | None
    runs: Sequence[float]
    eligible: bool
    fresh: bool = False
    pool: str | None = None
    duels: Sequence[RecordDuel] = ()
    duels_on: tuple[object, ...] | None = None
    attested: bool = True


@dataclass(frozen=True)
class Record:
    """A submission that took the record.

    `beaten` is the holder before it, `margin_percent` by how much its time is below that one's, and
    `p_value` the one-sided p-value of being no faster; all None for the first holder, and the
    p-value also where it was not tested because the holder had a single run. `pool` is the pool
    that measured it, and `duel` the duel that won the record.
    """

    submission_id: str
    date: str
    tta_seconds: float
    single_run: bool
    beaten: str | None
    margin_percent: float | None
    p_value: float | None
    pool: str | None = None
    duel: str | None = None


@dataclass(frozen=True)
class NoRecord:
    """A submission with a lower time than the holder of its day, and why it took no record.

    `holder` is None if there was none.
    """

    submission_id: str
    date: str
    tta_seconds: float
    holder: str | None
    p_value: float | None
    reason: str


@dataclass(frozen=True)
class RecordHistory:
    """The records in the order they were set, and the lower times that were none."""

    records: tuple[Record, ...]
    not_records: tuple[NoRecord, ...]


def record_history(contenders: Iterable[Contender]) -> RecordHistory:
    """Walk the submissions in time order; each may take the record from its holder.

    The first eligible submission that reached the target holds it. From then on a lower time takes
    it only if Welch's one-sided t-test on log times finds it faster with p < 0.05. A single run
    cannot be tested, so it takes no record from a holder of several runs; a holder of a single run
    has no scatter to hide behind and loses the record to any lower time. Results of one date, such
    as those of a round, go by lowest time first (`in_time_order`).
    """
    records: list[Record] = []
    not_records: list[NoRecord] = []
    holder: Contender | None = None
    for contender in in_time_order(contenders):
        if not contender.eligible or contender.tta_seconds is None:
            continue
        challenge = _challenge(contender, contender.tta_seconds, holder)
        if isinstance(challenge, Record):
            records.append(challenge)
            holder = contender
        elif challenge is not None:
            not_records.append(challenge)
    return RecordHistory(tuple(records), tuple(not_records))


def measured_history(contenders: Iterable[Contender]) -> RecordHistory:
    """The records among measured configurations, which luck must not take.

    The first holds it with the runs it has. From then on a lower time takes it from fresh runs
    alone: by a duel won with p < 0.01, at the duel's date; where no duel is possible, by Welch's
    one-sided p-value times the number of configurations measured since the record, this one
    included, below 0.05. One owner's workers alone give no record.
    """
    records: list[Record] = []
    not_records: dict[str, NoRecord] = {}
    holder: Contender | None = None
    since = 0
    for contender, duel in _in_order_of_verdicts(contenders):
        if not contender.eligible or contender.tta_seconds is None:
            continue
        since += duel is None
        challenge = _challenge_measured(
            contender, contender.tta_seconds, holder, since=since, duel=duel
        )
        if isinstance(challenge, Record):
            records.append(challenge)
            not_records.pop(contender.submission_id, None)
            holder, since = contender, 0
        elif challenge is not None:
            not_records[contender.submission_id] = challenge
    return RecordHistory(tuple(records), tuple(not_records.values()))


def _in_order_of_verdicts(
    contenders: Iterable[Contender],
) -> list[tuple[Contender, RecordDuel | None]]:
    """Each contender at the date of its measurement, and again at that of each of its duels."""
    ordered = in_time_order(contenders)
    verdicts: list[tuple[Contender, RecordDuel | None]] = [(one, None) for one in ordered]
    verdicts += [(one, duel) for one in ordered for duel in one.duels]
    return sorted(verdicts, key=lambda verdict: (verdict[1] or verdict[0]).date)


def _challenge_measured(
    contender: Contender,
    tta_seconds: float,
    holder: Contender | None,
    *,
    since: int,
    duel: RecordDuel | None,
) -> Record | NoRecord | None:
    if duel is not None and (holder is None or duel.holder != holder.pool):
        return None  # The record had another holder before this duel was fought.
    if contender is holder or _is_slower(tta_seconds, holder):
        return None
    if not contender.attested:
        held_by = None if holder is None else holder.submission_id
        return NoRecord(
            contender.submission_id, contender.date, tta_seconds, held_by, None, ONE_OWNER
        )
    if holder is None or holder.tta_seconds is None:
        return _record(contender, tta_seconds, None, p_value=None)
    p_value, limit, why = None, DUEL_ALPHA, "no duel with the holder has decided yet"
    if duel is not None:
        p_value = duel.p_value
    elif not may_duel(contender, holder):
        alone, limit, why = _p_no_faster(contender, holder), ALPHA, "too few runs to compare"
        p_value = None if alone is None else min(1.0, alone * since)
    if contender.fresh and p_value is not None and p_value < limit:
        return _record(contender, tta_seconds, holder, p_value=p_value, duel=duel)
    if not contender.fresh:
        why = "its fresh runs are pending"
    elif p_value is not None:
        why = _beyond_chance(p_value, limit)
    return NoRecord(
        contender.submission_id, contender.date, tta_seconds, holder.submission_id, p_value, why
    )


def _is_slower(tta_seconds: float, holder: Contender | None) -> bool:
    held = None if holder is None else holder.tta_seconds
    return held is not None and tta_seconds >= held


def may_duel(contender: Contender, holder: Contender) -> bool:
    """Whether two configurations can be trained in turn on one class of worker."""
    return contender.duels_on is not None and contender.duels_on == holder.duels_on


def _beyond_chance(p_value: float, limit: float) -> str:
    told = f"one-sided p = {p_value:.2g}, must be below {limit:g}"
    return f"not significantly faster than the holder: {told}"


def in_time_order(contenders: Iterable[Contender]) -> list[Contender]:
    """Sort by date; within a date by the lowest time, and equal times by the smaller id."""

    def key(contender: Contender) -> tuple[str, float, str]:
        tta_seconds = contender.tta_seconds
        return (
            contender.date,
            float("inf") if tta_seconds is None else tta_seconds,
            contender.submission_id,
        )

    return sorted(contenders, key=key)


def _challenge(
    contender: Contender, tta_seconds: float, holder: Contender | None
) -> Record | NoRecord | None:
    """Judge a time: a record, a lower time that is no record, or None."""
    if holder is None or holder.tta_seconds is None:
        return _record(contender, tta_seconds, None, p_value=None)
    if tta_seconds >= holder.tta_seconds:
        return None
    if len(holder.runs) < 2:
        return _record(contender, tta_seconds, holder, p_value=None)
    p_value = _p_no_faster(contender, holder)
    if p_value is not None and p_value < ALPHA:
        return _record(contender, tta_seconds, holder, p_value=p_value)
    why = (
        "a single run is too few to compare with the holder's runs"
        if p_value is None
        else _beyond_chance(p_value, ALPHA)
    )
    return NoRecord(
        contender.submission_id, contender.date, tta_seconds, holder.submission_id, p_value, why
    )


def _record(
    contender: Contender,
    tta_seconds: float,
    holder: Contender | None,
    *,
    p_value: float | None,
    duel: RecordDuel | None = None,
) -> Record:
    before = None if holder is None else holder.tta_seconds
    return Record(
        submission_id=contender.submission_id,
        date=contender.date if duel is None else duel.date,
        tta_seconds=tta_seconds,
        single_run=len(contender.runs) < 2,
        beaten=None if holder is None else holder.submission_id,
        margin_percent=None if not before else (1 - tta_seconds / before) * 100.0,
        p_value=p_value,
        pool=contender.pool,
        duel=None if duel is None else duel.duel_id,
    )


def _p_no_faster(contender: Contender, holder: Contender) -> float | None:
    one, other = log_times(contender.runs), log_times(holder.runs)
    gap = None if one is None or other is None else log_gap(one, other)
    return None if gap is None else gap.p_first_faster

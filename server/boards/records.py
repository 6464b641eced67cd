"""Records of a benchmark: who held first place when, and the lower times that missed it.

Measured times change hands by a head-to-head with the holder. A published time must beat its holder
by more than chance.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import POSSIBLE, Evidence
from finishline.rules.statistics.gaps import ALPHA, log_times, welch
from server.base.board_versions import board_versions, cached_for_board
from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, Submission
from server.base.visibility import ranks
from server.boards.board import first_places
from server.boards.rows import convergence_factor
from server.submissions.rows import run_times
from server.verifications.head_to_heads import FirstPlace
from web.names import hardware_words


class Lower(Schema):
    """A submission with a better time, or quality, than the holder of its day.

    `quality` is set on a board that ranks by it. `p_value` is the one-sided p-value of being no
    better than the holder. It is null for the first record, and if the holder had a single run.
    """

    submission_id: str
    date: str
    tta_seconds: float
    p_value: float | None
    quality: float | None = None


class Record(Lower):
    """A submission that took the record of its division.

    `margin` is its gain of quality over the record before. `verification_id` is the head-to-head
    that decided it. `ended` says how a holder lost its place otherwise. A holder that `returned`
    was the holder before, until the next ones were `ended`.
    """

    single_run: bool
    beaten: str | None
    margin_percent: float | None
    margin: float | None = None
    verification_id: str | None = None
    ended: Literal["withdrawn", "retired"] | None = None
    returned: bool = False


class NoRecord(Lower):
    """A submission with a lower time than its day's `holder` that missed the record, and why."""

    holder: str
    reason: str


class Described(Named):
    """The words of a list of records about a submission."""

    benchmark: str
    model: str
    hardware: str
    status: str
    evidence: str = "claimed"
    check: str | None = None


class RecordView(Described, Record):
    __doc__ = Record.__doc__


class NoRecordView(Described, NoRecord):
    __doc__ = NoRecord.__doc__


_View = TypeVar("_View", bound=Described)


class DivisionRecords(Schema):
    """The records of one division in the order they were set.

    Each hardware class has a list of measured times. `evidence` marks a list of published times.
    The `holder` of first place has the last record.
    """

    division: str
    hardware_class: str | None = None
    evidence: Evidence = "measured"
    holder: str | None = None
    records: list[RecordView]
    not_records: list[NoRecordView]


class RecordList(Schema):
    """The records of a benchmark, division by division."""

    benchmark: str
    divisions: list[DivisionRecords]


def list_records(
    session: Session, benchmark: Benchmark, *, version: int | None = None
) -> RecordList:
    """Read the records, cached by board version: for sessions and callers that only read."""
    make = partial(_find_records, session, benchmark, version)
    return cached_for_board(session, benchmark.benchmark_id, "records", make, version=version)


def records_by_benchmark(
    session: Session, benchmarks: Mapping[str, Benchmark]
) -> dict[str, RecordList]:
    """List the records by benchmark id, for benchmarks with a submission."""
    # Versions come first: a write in between leaves a list that the next read derives again.
    versions = board_versions(session)
    return {
        benchmark_id: list_records(session, benchmark, version=versions[benchmark_id])
        for benchmark_id, benchmark in benchmarks.items()
        if benchmark_id in versions
    }


def lowest_records(records: RecordList) -> dict[Evidence, DivisionRecords]:
    """Return the list with the lowest record time, for each kind of evidence that has one."""
    held = [one for one in records.divisions if one.holder is not None]
    held.sort(key=lambda one: one.records[-1].tta_seconds, reverse=True)
    return {one.evidence: one for one in held}


def first_row(held: DivisionRecords) -> RecordView | NoRecordView:
    """Return the first row of the board: the holder's, or an archive's lowest time."""
    rows: list[RecordView | NoRecordView] = [held.records[-1]]
    rows += held.not_records if held.evidence == "published" else []
    return min(rows, key=lambda one: one.tta_seconds)


def held_record(session: Session, benchmark: Benchmark, division: str) -> dict[str, Any] | None:
    """Return a division's published record, with the `lower` times that missed it."""
    for one in list_records(session, benchmark).divisions:
        if one.division == division and one.evidence == "published":
            last = one.records[-1]
            missed = [each for each in one.not_records if each.tta_seconds < last.tta_seconds]
            lower = {each.submission_id: each.reason for each in missed}
            return last.model_dump() | {"lower": lower}
    return None


@dataclass(frozen=True)
class Contender:
    """A published submission that may hold a record. `runs` are on the scale of `tta_seconds`."""

    submission_id: str
    date: str
    tta_seconds: float
    runs: Sequence[float]


@dataclass(frozen=True)
class RecordHistory:
    """The records in the order they were set, and the lower times that missed them."""

    records: tuple[Record, ...] = ()
    not_records: tuple[NoRecord, ...] = ()


def record_history(contenders: Iterable[Contender]) -> RecordHistory:
    """Walk published submissions in time order. Each may take the record from its holder.

    The first one holds it. Later a lower time takes it only if Welch's one-sided t-test on log
    times finds it faster with p < 0.05. A single run can't be tested, so it takes no record from a
    holder of several runs. A holder with a single run has no scatter, and loses to any lower time.
    Results of one date, for example of a round, go by lowest time, and equal times by smaller id.
    """
    records: list[Record] = []
    not_records: list[NoRecord] = []
    holder: Contender | None = None
    for one in sorted(contenders, key=lambda c: (c.date, c.tta_seconds, c.submission_id)):
        if holder is not None and one.tta_seconds >= holder.tta_seconds:
            continue
        gap = None if holder is None else welch(log_times(one.runs), log_times(holder.runs))
        p_value = None if gap is None else gap.p_less
        is_untested = holder is None or len(holder.runs) < 2
        if holder is None or is_untested or (p_value is not None and p_value < ALPHA):
            before = None if holder is None else holder.tta_seconds
            records.append(
                Record.of(
                    one,
                    single_run=len(one.runs) < 2,
                    beaten=None if holder is None else holder.submission_id,
                    margin_percent=None if not before else (1 - one.tta_seconds / before) * 100.0,
                    p_value=None if is_untested else p_value,
                )
            )
            holder = one
        else:
            own = {"holder": holder.submission_id, "p_value": p_value}
            not_records.append(NoRecord.of(one, reason=_why_no_record(p_value), **own))
    return RecordHistory(tuple(records), tuple(not_records))


def _why_no_record(p_value: float | None) -> str:
    if p_value is None:
        return "a single run is too few to compare with the holder's runs"
    return (
        "not significantly faster than the holder: "
        f"one-sided p = {p_value:.2g}, must be below {ALPHA:g}"
    )


def measured_history(place: FirstPlace) -> RecordHistory:
    """List the holders of a board, the present one last, and the rows that failed to follow."""
    by_quality = place.score.by == "quality"
    records, not_records = list[Record](), list[NoRecord]()
    for each in place.holdings:
        row, won = each.row, each.won
        ratio, difference = (None, None) if won is None else (won.ratio, won.difference)
        records.append(
            Record.of(
                row,
                date=each.since.isoformat(),
                tta_seconds=row.seconds,
                quality=row.figure if by_quality else None,
                p_value=won and won.p_value,
                single_run=False,
                beaten=won and won.holder,
                margin_percent=None if ratio is None else (1 - ratio) * 100.0,
                margin=None if difference is None else abs(difference),
                verification_id=won and won.verification_id,
                returned=each.returned,
            )
        )
    for submission_id, meetings in place.met.items():
        challenger, last = place.rows.get(submission_id), meetings[-1]
        if challenger is None or not challenger.is_live or last.state != "not_proven":
            continue
        why = place.why_not_first(submission_id, challenger.figure)
        if why is not None and place.holder is not None:
            not_records.append(
                NoRecord.of(
                    last,
                    submission_id=submission_id,
                    date=(last.ended_at or last.started_at).isoformat(),
                    tta_seconds=challenger.seconds,
                    quality=challenger.figure if by_quality else None,
                    holder=place.holder.submission_id,
                    reason=why,
                )
            )
    return RecordHistory(tuple(records), tuple(not_records))


def _find_records(session: Session, benchmark: Benchmark, version: int | None) -> RecordList:
    published = _published(session, benchmark.benchmark_id)
    places = first_places(session, benchmark, version)
    divisions = []
    for division in benchmark.divisions:
        measured = [(board[1], place) for board, place in places.items() if board[0] == division]
        for hardware_class, place in measured:
            holder = None if place.holder is None else place.holder.submission_id
            of = {"division": division, "hardware_class": hardware_class, "holder": holder}
            divisions.append(_with_names(session, of, measured_history(place)))
        if published[division] or not measured:
            history = record_history(published[division])
            of = {"division": division}
            if history.records:
                of |= {"evidence": "published", "holder": history.records[-1].submission_id}
            divisions.append(_with_names(session, of, history))
    return RecordList(benchmark=benchmark.benchmark_id, divisions=divisions)


def _with_names(session: Session, of: Mapping[str, Any], history: RecordHistory) -> DivisionRecords:
    ids = [each.submission_id for each in (*history.records, *history.not_records)]
    columns = (Submission.id, Submission.model, Submission.system, Submission.status)
    benchmark = Submission.benchmark_id.label("benchmark")
    rows = session.execute(
        select(
            *columns,
            benchmark,
            Submission.evidence,
            Submission.check_word.label("check"),
            SUBMITTER,
            DISPLAY_NAME,
        )
        .join(Submission.user)
        .outerjoin(Submission.published)
        .where(Submission.id.in_(ids))
    )
    names = {row.id: row for row in rows}

    def named(view: type[_View], found: Iterable[Lower]) -> list[_View]:
        rows = ((names[one.submission_id], one.model_dump()) for one in found)
        return [view.of(row, hardware=hardware_words(row.system), **own) for row, own in rows]

    return DivisionRecords(
        **of,
        records=named(RecordView, history.records),
        not_records=named(NoRecordView, history.not_records),
    )


def _published(session: Session, benchmark_id: str) -> defaultdict[str, list[Contender]]:
    which = [
        Submission.benchmark_id == benchmark_id,
        Submission.kind == "train",
        Submission.evidence == "published",
        Submission.tta_seconds.between(*POSSIBLE["tta_seconds"]),
        Submission.eligible.is_(True),
        Submission.status.not_in(("rejected", "inconclusive")),
        ranks(),
    ]
    columns = (
        *(Submission.id, Submission.division, Submission.tta_seconds, Submission.result),
        *(Submission.submitted_at, PublishedResult.published_on, PublishedResult.source),
    )
    rows = session.execute(select(*columns).join(Submission.published).where(*which)).all()
    times = run_times(session, *which)
    found: defaultdict[str, list[Contender]] = defaultdict(list)
    for row in rows:
        if row.source is None:  # The column may hold JSON's null, which SQL counts as a value.
            continue
        factor = convergence_factor(row.tta_seconds, row.result)
        date = (row.published_on or row.submitted_at).isoformat()
        runs = [seconds * factor for seconds in times.get(row.id, ())]
        found[row.division].append(Contender(row.id, date, row.tta_seconds, runs))
    return found

"""Records of a benchmark: who held one when, and how often each holder had tried."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, get_args

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import POSSIBLE, Evidence
from server.base.board_versions import board_version, board_versions, cached_for_board
from server.base.models import DISPLAY_NAME, SUBMITTER, Pool, PublishedResult, Submission
from server.base.models.visibility import ranks
from server.boards.record_history import (
    Contender,
    Record,
    RecordHistory,
    measured_history,
    record_history,
)
from server.boards.record_views import DivisionRecords, NoRecordView, RecordList, RecordView
from server.boards.rows import convergence_factor
from server.submissions.service import run_times
from web.names import hardware_words

# A division, and the evidence behind its list: the two are never one list.
List = tuple[str, Evidence]
Histories = dict[List, RecordHistory]


@dataclass(frozen=True)
class Standing:
    """The lowest standing record of some evidence, its division's earlier ones, and its holder."""

    records: tuple[Record, ...]
    division: str
    submitter: str
    display_name: str | None
    model: str
    hardware: str
    status: str
    evidence: str
    check: str | None


Standings = Mapping[Evidence, Standing]


@dataclass(frozen=True)
class Held:
    """The record that stands in a division, its holder, and the lower times that missed it."""

    submission_id: str
    tta_seconds: float
    submitter: str
    display_name: str | None
    hardware: str
    lower: Mapping[str, str]


def list_records(
    session: Session, benchmark: Benchmark, *, version: int | None = None
) -> RecordList:
    """The records of each division, found once for each version of the board.

    The session must be one that only reads. Nobody may change the answer.
    """
    benchmark_id = benchmark.benchmark_id
    if version is None:
        version = board_version(session, benchmark_id)
    histories = _histories(session, benchmark, version)
    make = partial(_find_records, session, benchmark_id, histories)
    return cached_for_board(session, benchmark_id, "records", make, version=version)


def held_record(
    session: Session,
    benchmark: Benchmark,
    division: str,
    evidence: Evidence,
    *,
    version: int | None = None,
) -> Held | None:
    """The standing record of a division and evidence, None before the first.

    The session must be one that only reads.
    """
    if version is None:
        version = board_version(session, benchmark.benchmark_id)
    history = _histories(session, benchmark, version).get((division, evidence))
    if history is None or not history.records:
        return None
    make = partial(_find_held, session, history)
    name = f"held {division} {evidence}"
    return cached_for_board(session, benchmark.benchmark_id, name, make, version=version)


def _find_held(session: Session, history: RecordHistory) -> Held:
    record = history.records[-1]
    named = _names(session, [record.submission_id])[record.submission_id]
    return Held(
        record.submission_id,
        record.tta_seconds,
        **{name: named[name] for name in ("submitter", "display_name", "hardware")},
        lower={
            one.submission_id: one.reason
            for one in history.not_records
            if one.tta_seconds < record.tta_seconds
        },
    )


def records_by_benchmark(
    session: Session, benchmarks: Mapping[str, Benchmark]
) -> dict[str, RecordList]:
    """The records of those of the benchmarks that have a submission, by benchmark id."""
    # Versions come first: a write in between leaves a list that the next read derives again.
    versions = board_versions(session)
    return {
        benchmark_id: list_records(session, benchmark, version=versions[benchmark_id])
        for benchmark_id, benchmark in benchmarks.items()
        if benchmark_id in versions
    }


def standing_by_benchmark(
    session: Session, benchmarks: Mapping[str, Benchmark]
) -> dict[str, Standings]:
    """The standing records, measured and published, of those of the benchmarks that have one.

    For a page of all benchmarks: it leaves out the counts of tries, the slow part of the lists.
    """
    versions = board_versions(session)
    found = {
        benchmark_id: _standing(session, benchmark, versions[benchmark_id])
        for benchmark_id, benchmark in benchmarks.items()
        if benchmark_id in versions
    }
    return {name: standings for name, standings in found.items() if standings}


def _standing(session: Session, benchmark: Benchmark, version: int) -> Standings:
    make = partial(_find_standing, session, _histories(session, benchmark, version))
    return cached_for_board(session, benchmark.benchmark_id, "standing", make, version=version)


def _histories(session: Session, benchmark: Benchmark, version: int) -> Histories:
    make = partial(_find_histories, session, benchmark)
    return cached_for_board(session, benchmark.benchmark_id, "histories", make, version=version)


def _find_histories(session: Session, benchmark: Benchmark) -> Histories:
    found = _contenders(session, benchmark.benchmark_id)
    histories: Histories = {}
    for division in benchmark.divisions:
        published = found.get((division, "published"), ())
        measured = found.get((division, "measured"), ())
        if measured or not published:
            histories[division, "measured"] = measured_history(measured)
        if published:
            histories[division, "published"] = record_history(published)
    return histories


def _find_standing(session: Session, histories: Histories) -> Standings:
    lowest: dict[Evidence, tuple[str, tuple[Record, ...]]] = {}
    for (division, evidence), history in histories.items():
        best = lowest.get(evidence)
        if history.records and (
            best is None or history.records[-1].tta_seconds < best[1][-1].tta_seconds
        ):
            lowest[evidence] = division, history.records
    holders = _names(session, [records[-1].submission_id for _, records in lowest.values()])
    return {
        evidence: Standing(records, division, **holders[records[-1].submission_id])
        for evidence, (division, records) in lowest.items()
    }


def _find_records(session: Session, benchmark_id: str, histories: Histories) -> RecordList:
    divisions = [
        _of_division(session, benchmark_id, key, history) for key, history in histories.items()
    ]
    return RecordList(benchmark=benchmark_id, divisions=divisions)


def _of_division(
    session: Session, benchmark_id: str, key: List, history: RecordHistory
) -> DivisionRecords:
    division, evidence = key
    ids = [r.submission_id for r in history.records]
    named = _names(session, ids + [r.submission_id for r in history.not_records])
    tries = count_tries(session, benchmark_id, division, ids)
    return DivisionRecords(
        division=division,
        evidence=evidence,
        records=[
            RecordView(
                **asdict(r),
                **named[r.submission_id],
                tries=tries[r.submission_id],
            )
            for r in history.records
        ],
        not_records=[
            NoRecordView(**asdict(r), **named[r.submission_id]) for r in history.not_records
        ],
    )


def _names(session: Session, submission_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    rows = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.system,
            Submission.status,
            Submission.evidence,
            Submission.check_word,
            SUBMITTER,
            DISPLAY_NAME,
        )
        .join(Submission.user)
        .outerjoin(Submission.published)
        .where(Submission.id.in_(submission_ids))
    )
    return {
        row.id: {
            "submitter": row.submitter,
            "display_name": row.display_name,
            "model": row.model,
            "hardware": hardware_words(row.system),
            "status": row.status,
            "evidence": row.evidence,
            "check": row.check_word,
        }
        for row in rows
    }


# A statement counts for so many records: no database takes columns without end.
RECORDS_AT_ONCE = 100
COLUMNS = (
    Submission.id,
    Submission.user_id,
    Submission.submitted_at,
    PublishedResult.organisation,
    PublishedResult.published_on,
)


def count_tries(
    session: Session, benchmark_id: str, division: str, submission_ids: Sequence[str]
) -> dict[str, int]:
    """Number of trainings that each one's submitter had handed in up to it, itself included.

    Tries are to the same benchmark and division, withdrawn and rejected ones included. An archive's
    submitter is the organisation it names. Only tries of these submitters are counted, by an index:
    no row is read, and most of a board is skipped.
    """
    counts: dict[str, int] = {}
    for first in range(0, len(submission_ids), RECORDS_AT_ONCE):
        some = submission_ids[first : first + RECORDS_AT_ONCE]
        tried = select(*COLUMNS).outerjoin_from(Submission, PublishedResult)
        rows = session.execute(tried.where(Submission.id.in_(some))).all()
        counted = session.execute(
            select(*(func.count().filter(_up_to(row)) for row in rows))
            .outerjoin_from(Submission, PublishedResult)
            .where(
                Submission.benchmark_id == benchmark_id,
                Submission.kind == "train",
                # All there are: the index goes by it before it goes by the submitter.
                Submission.evidence.in_(get_args(Evidence)),
                Submission.division == division,
                Submission.user_id.in_({row.user_id for row in rows}),
            )
        ).one()
        counts |= {row.id: count for row, count in zip(rows, counted, strict=True)}
    return counts


def _up_to(row: Any) -> ColumnElement[bool]:
    if row.published_on is None:
        not_later = Submission.submitted_at <= row.submitted_at
    else:
        not_later = PublishedResult.published_on <= row.published_on
    return and_(
        Submission.user_id == row.user_id,
        PublishedResult.organisation.is_(None)
        if row.organisation is None
        else PublishedResult.organisation == row.organisation,
        not_later,
    )


# Evidence whose own logs hold a record.
OWN_TIMES: tuple[str, ...] = ("published",)


def _contenders(session: Session, benchmark_id: str) -> dict[List, list[Contender]]:
    found: defaultdict[List, list[Contender]] = defaultdict(list)
    for division, one in _measured(session, benchmark_id):
        found[division, "measured"].append(one)
    for division, one in _published(session, benchmark_id):
        found[division, "published"].append(one)
    return found


def _measured(session: Session, benchmark_id: str) -> Iterator[tuple[str, Contender]]:
    """Earliest submission of each measured configuration, dated by its verdict."""
    statement = (
        select(Submission.id, Submission.division, Pool)
        .join(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == benchmark_id,
            Submission.evidence == "measured",
            Submission.eligible.is_(True),
            Pool.measured_seconds.between(*POSSIBLE["tta_seconds"]),
            ranks(),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    seen: set[str] = set()
    for submission_id, division, pool in session.execute(statement):
        if pool.id not in seen and pool.measured_at is not None:
            seen.add(pool.id)
            date = pool.measured_at.isoformat()
            yield division, Contender(submission_id, date, pool.measured_seconds, (), True, pool.id)


def _published(session: Session, benchmark_id: str) -> list[tuple[str, Contender]]:
    which = [
        Submission.benchmark_id == benchmark_id,
        Submission.kind == "train",
        Submission.evidence.in_(OWN_TIMES),
        Submission.tta_seconds.between(*POSSIBLE["tta_seconds"]),
        Submission.eligible.is_(True),
        Submission.status.not_in(("rejected", "inconclusive")),
        ranks(),
    ]
    times = run_times(session, *which)
    columns = (
        Submission.id,
        Submission.division,
        Submission.tta_seconds,
        Submission.result,
        Submission.submitted_at,
        Submission.evidence,
        PublishedResult.published_on,
        PublishedResult.source,
    )
    statement = select(*columns).outerjoin(Submission.published).where(*which)
    return [
        (
            row.division,
            Contender(
                submission_id=row.id,
                date=(row.published_on or row.submitted_at).isoformat(),
                tta_seconds=row.tta_seconds,
                runs=[
                    seconds * convergence_factor(row.tta_seconds, row.result)
                    for seconds in times.get(row.id, ())
                ],
                eligible=True,
            ),
        )
        for row in session.execute(statement)
        if row.source is not None or row.evidence != "published"
    ]

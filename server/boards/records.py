"""Records of a benchmark: who held one when."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import POSSIBLE, Evidence
from server.base.board_versions import board_version, board_versions, cached_for_board
from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, Submission
from server.base.models.visibility import ranks
from server.boards.record_history import (
    Contender,
    NoRecord,
    Record,
    RecordHistory,
    record_history,
)
from server.boards.record_views import DivisionRecords, NoRecordView, RecordList, RecordView
from server.boards.rows import convergence_factor
from server.submissions.service import run_times
from server.verifications.first_place import Board, FirstPlace, read_first_places
from web.names import hardware_words

# Lists of published records, by division.
Histories = dict[str, RecordHistory]
FirstPlaces = dict[Board, FirstPlace]


@dataclass(frozen=True)
class Standing:
    """The lowest standing record of some evidence, its division's earlier ones, and its holder."""

    records: tuple[Record, ...]
    division: str
    holder: dict[str, Any]


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


def first_places(session: Session, benchmark: Benchmark, version: int) -> FirstPlaces:
    """First place of each division and hardware class, found once for each version of the board."""
    make = partial(read_first_places, session, benchmark.benchmark_id)
    return cached_for_board(session, benchmark.benchmark_id, "first places", make, version=version)


def list_records(
    session: Session, benchmark: Benchmark, *, version: int | None = None
) -> RecordList:
    """The records of each division and class, found once for each version of the board.

    The session must be one that only reads. Nobody may change the answer.
    """
    benchmark_id = benchmark.benchmark_id
    if version is None:
        version = board_version(session, benchmark_id)
    histories = _histories(session, benchmark, version)
    places = first_places(session, benchmark, version)
    make = partial(_find_records, session, benchmark, histories, places)
    return cached_for_board(session, benchmark_id, "records", make, version=version)


def held_record(
    session: Session, benchmark: Benchmark, division: str, *, version: int | None = None
) -> Held | None:
    """The standing published record of a division, None before the first.

    The session must be one that only reads.
    """
    if version is None:
        version = board_version(session, benchmark.benchmark_id)
    history = _histories(session, benchmark, version).get(division)
    if history is None or not history.records:
        return None
    make = partial(_find_held, session, history)
    name = f"held {division}"
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
    """The standing records, measured and published, of those of the benchmarks that have one."""
    versions = board_versions(session)
    found = {
        benchmark_id: _standing(session, benchmark, versions[benchmark_id])
        for benchmark_id, benchmark in benchmarks.items()
        if benchmark_id in versions
    }
    return {name: standings for name, standings in found.items() if standings}


def _standing(session: Session, benchmark: Benchmark, version: int) -> Standings:
    histories = _histories(session, benchmark, version)
    make = partial(_find_standing, session, histories, first_places(session, benchmark, version))
    return cached_for_board(session, benchmark.benchmark_id, "standing", make, version=version)


def _histories(session: Session, benchmark: Benchmark, version: int) -> Histories:
    make = partial(_find_histories, session, benchmark)
    return cached_for_board(session, benchmark.benchmark_id, "histories", make, version=version)


def _find_histories(session: Session, benchmark: Benchmark) -> Histories:
    found: defaultdict[str, list[Contender]] = defaultdict(list)
    for division, one in _published(session, benchmark.benchmark_id):
        found[division].append(one)
    return {
        division: record_history(found[division])
        for division in benchmark.divisions
        if division in found
    }


def _find_standing(session: Session, histories: Histories, places: FirstPlaces) -> Standings:
    """The lowest standing record of each evidence, with those before it."""
    lists: list[tuple[Evidence, str, tuple[Record, ...]]] = [
        ("published", division, history.records) for division, history in histories.items()
    ]
    lists += [
        ("measured", board[0], _records_of(place))
        for board, place in places.items()
        if place.holder is not None
    ]
    lowest: dict[Evidence, tuple[str, tuple[Record, ...]]] = {}
    for evidence, division, records in lists:
        best = lowest.get(evidence)
        if records and (best is None or records[-1].tta_seconds < best[1][-1].tta_seconds):
            lowest[evidence] = division, records
    holders = _names(session, [records[-1].submission_id for _, records in lowest.values()])
    return {
        evidence: Standing(records, division, holders[records[-1].submission_id])
        for evidence, (division, records) in lowest.items()
    }


def _records_of(place: FirstPlace) -> tuple[Record, ...]:
    """The holders of a board as records: the present one last, if there is one."""
    return tuple(
        Record(
            submission_id=each.submission_id,
            date=each.since.isoformat(),
            tta_seconds=each.seconds,
            single_run=False,
            beaten=each.beaten,
            margin_percent=None if each.ratio is None else (1 - each.ratio) * 100.0,
            p_value=each.p_value,
            verification_id=each.verification_id,
            ended=each.ended,
            returned=each.returned,
        )
        for each in place.holdings
    )


def _not_proven(place: FirstPlace) -> tuple[NoRecord, ...]:
    """Rows with a lower time than the holder's, whose head-to-head did not prove it."""
    found = []
    for submission_id, meetings in place.met.items():
        row, last = place.rows.get(submission_id), meetings[-1]
        if row is None or place.holder is None or last.state != "not_proven":
            continue
        why = place.why_not_first(submission_id, row.seconds)
        if why is not None and row.is_live:
            date = (last.ended_at or last.started_at).isoformat()
            holder = place.holder.submission_id
            found.append(NoRecord(submission_id, date, row.seconds, holder, last.p_value, why))
    return tuple(found)


def _find_records(
    session: Session, benchmark: Benchmark, histories: Histories, places: FirstPlaces
) -> RecordList:
    divisions = []
    for division in benchmark.divisions:
        measured = [(board[1], place) for board, place in places.items() if board[0] == division]
        history = histories.get(division)
        for hardware_class, place in measured:
            found = RecordHistory(_records_of(place), _not_proven(place))
            divisions.append(_of_division(session, division, hardware_class, found))
        if history is not None or not measured:
            found = history or RecordHistory((), ())
            divisions.append(_of_division(session, division, None, found))
    return RecordList(benchmark=benchmark.benchmark_id, divisions=divisions)


def _of_division(
    session: Session, division: str, hardware_class: str | None, history: RecordHistory
) -> DivisionRecords:
    ids = [r.submission_id for r in history.records]
    named = _names(session, ids + [r.submission_id for r in history.not_records])
    is_published = hardware_class is None and history.records
    return DivisionRecords(
        division=division,
        hardware_class=hardware_class,
        evidence="published" if is_published else "measured",
        records=[RecordView(**asdict(r), **named[r.submission_id]) for r in history.records],
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


def _published(session: Session, benchmark_id: str) -> list[tuple[str, Contender]]:
    which = [
        Submission.benchmark_id == benchmark_id,
        Submission.kind == "train",
        Submission.evidence == "published",
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
            ),
        )
        for row in session.execute(statement)
        if row.source is not None
    ]

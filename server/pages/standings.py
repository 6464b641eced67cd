"""Place of a submission on its board, and its neighbours."""

import math
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import place_words, ranked_seconds
from server.base.board_versions import board_version
from server.base.models import Submission
from server.boards.schemas import BoardQuery
from server.boards.service import PlacedRow, ranked_board
from web.compare import neighbour_names
from web.names import hardware_words

Context = dict[str, Any]
FURTHER = 2


@dataclass(frozen=True)
class Place:
    """A submission's place by the first metric of its kind; see the API's board entry."""

    submission_id: str
    submitter: str
    display_name: str | None
    model: str
    hardware: str
    system: str
    trained_with: str
    submitted_at: datetime
    submitted_on: date | None
    division: str
    rank: int | None
    tied: bool
    is_holder: bool
    not_first: str | None
    head_to_head: str | None
    not_separated_from: int | None
    visible_gap_percent: float | None
    unranked_reason: str | None
    tta_seconds: float | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    latency_ms: float | None
    status: str
    evidence: str
    check: str | None
    measured_seconds: float | None
    measured_low_seconds: float | None
    measured_high_seconds: float | None
    measured_runs: int
    busy: bool
    pool_id: str | None
    duplicate_of: str | None


OF_SYSTEM = ("hardware", "system")
PLACE_FIELDS = tuple(field.name for field in fields(Place))


def places_of(session: Session, benchmark: Benchmark, query: BoardQuery) -> list[Place]:
    """The places of a whole board: the ranked ones in order, then those that are not ranked."""
    version = board_version(session, benchmark.benchmark_id)
    board = ranked_board(session, benchmark, query, version=version)
    return [_place(placed) for placed in board.all_rows(session)]


def place_of(session: Session, places: list[Place], submission_id: str) -> Context | None:
    """The place of one submission, and the leader and the neighbours it may be compared with.

    None where it is not on the board.
    """
    found = next((place for place in places if place.submission_id == submission_id), None)
    if found is None:
        return None
    ranked = [place for place in places if place.rank is not None]
    at = ranked.index(found) if found.rank is not None else None
    others = [] if at is None else [_other(p, why) for p, why in _beside(ranked, at)]
    around = _around(places, found)
    names = neighbour_names(_with_settings(session, around))
    timed = [_timed(place, name) for place, name in zip(around, names, strict=True)]
    return vars(found) | {"ranked": len(ranked), "others": others, "around": timed}


def _place(placed: PlacedRow) -> Place:
    figures = {name: placed.figure(name) for name in PLACE_FIELDS if name not in OF_SYSTEM}
    system = placed.figure("system")
    return Place(**figures, hardware=hardware_words(system), system=system["name"])


def _around(places: list[Place], found: Place) -> list[Place]:
    """The rows up to two places from one by time, among all that have a number of their kind."""
    numbered = [place for place in places if place_words(vars(place)) is not None]
    numbered.sort(key=lambda place: _seconds(place) or math.inf)
    if found not in numbered:
        return [found]
    at = numbered.index(found)
    return numbered[max(0, at - FURTHER) : at + FURTHER + 1]


def _with_settings(session: Session, around: list[Place]) -> list[Context]:
    """Neighbours as they are named, with the settings of their claims."""
    ids = [place.submission_id for place in around]
    chosen = select(Submission.id, Submission.hyperparameters).where(Submission.id.in_(ids))
    settings = {row.id: row.hyperparameters for row in session.execute(chosen)}
    return [
        vars(place)
        | {"system": {"name": place.system}, "runs": ()}
        | {"hyperparameters": settings.get(place.submission_id) or {}}
        for place in around
    ]


def _seconds(place: Place) -> float | None:
    if place.latency_ms is not None and place.tta_seconds is None:
        return place.latency_ms / 1000
    return ranked_seconds(vars(place))


def _timed(place: Place, name: str) -> Context:
    measured = place.evidence == "measured"
    return {
        "submission_id": place.submission_id,
        "place": place_words(vars(place)),
        "name": name,
        "seconds": _seconds(place),
        "low": place.measured_low_seconds if measured else place.tta_low_seconds,
        "high": place.measured_high_seconds if measured else place.tta_high_seconds,
    }


def _beside(ranked: list[Place], at: int) -> list[tuple[Place, str]]:
    """The best of the board, the one before and the one after a place, each once."""
    wanted = [(0, "the first"), (at - 1, "the one before"), (at + 1, "the next")]
    seen, beside = {at}, []
    for index, why in wanted:
        if 0 <= index < len(ranked) and index not in seen:
            seen.add(index)
            beside.append((ranked[index], why))
    return beside


def _other(place: Place, why: str) -> Context:
    return vars(place) | {"why": why}

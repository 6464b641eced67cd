"""Where a submission stands on its board, and who stands beside it."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.ranking import Metric
from server.leaderboard.encoding import BoardCache
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardEntry, BoardQuery
from server.leaderboard.service import board_version

Context = dict[str, Any]
FIRST_METRIC: dict[str, Metric] = {"train": "tta", "inference": "latency"}
WHOLE_BOARD = 1_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A submission's place by the first metric of its kind; see the API's board entry."""

    submission_id: str
    submitter: str
    model: str
    system: str
    rank: int | None
    tied: bool
    group: int | None
    group_rank: int | None
    single_run: bool
    unranked_reason: str | None
    tta_seconds: float | None
    latency_ms: float | None


class Standings:
    """The places of whole boards, each kept until its board changes.

    The page of every submission asks for its place, and a place is among all the others.
    """

    def __init__(self) -> None:
        self._cache: BoardCache[list[Place]] = BoardCache(size=64)

    def of(
        self, session: Session, benchmark: Benchmark, *, kind: str, division: str | None
    ) -> list[Place]:
        """The ranked ones in order, then those that are not ranked."""
        query = BoardQuery.model_validate({"metric": FIRST_METRIC[kind], "division": division})
        whole = query.model_copy(update={"limit": WHOLE_BOARD})
        return self._cache.get(
            f"{benchmark.sha256} {kind} {division}",
            board_version(session, benchmark.benchmark_id),
            lambda: [_place(entry) for entry in read_board(session, benchmark, whole).entries],
        )


def place_of(places: list[Place], submission_id: str) -> Context | None:
    """The place of one submission, and the leader and the neighbours it may be compared with.

    None where it is not on the board.
    """
    found = next((place for place in places if place.submission_id == submission_id), None)
    if found is None:
        return None
    ranked = [place for place in places if place.rank is not None]
    at = ranked.index(found) if found.rank is not None else None
    return {
        "rank": found.rank,
        "tied": found.tied,
        "group": found.group,
        "group_rank": found.group_rank,
        "group_size": sum(p.group == found.group for p in ranked) if found.group else 0,
        "single_run": found.single_run,
        "unranked_reason": found.unranked_reason,
        "ranked": len(ranked),
        "others": [] if at is None else [_other(p, why) for p, why in _beside(ranked, at)],
    }


def _place(entry: BoardEntry) -> Place:
    return Place(
        submission_id=entry.submission_id,
        submitter=entry.submitter,
        model=entry.model,
        system=entry.system.name,
        rank=entry.rank,
        tied=entry.tied,
        group=entry.group,
        group_rank=entry.group_rank,
        single_run=entry.single_run,
        unranked_reason=entry.unranked_reason,
        tta_seconds=entry.tta_seconds,
        latency_ms=entry.latency_ms,
    )


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
    return {
        "why": why,
        "rank": place.rank,
        "tied": place.tied,
        "submission_id": place.submission_id,
        "submitter": place.submitter,
        "model": place.model,
        "system": place.system,
    }

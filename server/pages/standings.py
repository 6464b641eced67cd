"""Where a submission stands on its board, and who stands beside it."""

from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.ranking import Metric
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardEntry, BoardQuery

Context = dict[str, Any]
LARGEST_BOARD = 1000
FIRST_METRIC: dict[str, Metric] = {"train": "tta", "inference": "latency"}


def ranked_list(
    session: Session, benchmark: Benchmark, *, kind: str, division: str | None
) -> list[BoardEntry]:
    """The board of a kind by its first metric, as far as one page of it goes."""
    query = BoardQuery.model_validate(
        {"metric": FIRST_METRIC[kind], "division": division, "limit": LARGEST_BOARD}
    )
    return read_board(session, benchmark, query).entries


def place_of(entries: list[BoardEntry], submission_id: str) -> Context | None:
    """The place of one submission, and the leader and the neighbours it may be compared with.

    None where it stands beyond the part of the board that was read.
    """
    found = next((e for e in entries if e.submission_id == submission_id), None)
    if found is None:
        return None
    ranked = [entry for entry in entries if entry.rank is not None]
    at = ranked.index(found) if found in ranked else None
    return {
        "rank": found.rank,
        "tied": found.tied,
        "group": found.group,
        "group_rank": found.group_rank,
        "group_size": sum(e.group == found.group for e in ranked) if found.group else 0,
        "single_run": found.single_run,
        "unranked_reason": found.unranked_reason,
        "ranked": len(ranked),
        "others": [] if at is None else [_other(e, why) for e, why in _beside(ranked, at)],
    }


def _beside(ranked: list[BoardEntry], at: int) -> list[tuple[BoardEntry, str]]:
    """The best of the board, the one before and the one after a place, each once."""
    wanted = [(0, "the first"), (at - 1, "the one before"), (at + 1, "the next")]
    seen, beside = {at}, []
    for place, why in wanted:
        if 0 <= place < len(ranked) and place not in seen:
            seen.add(place)
            beside.append((ranked[place], why))
    return beside


def _other(entry: BoardEntry, why: str) -> Context:
    return {
        "why": why,
        "rank": entry.rank,
        "tied": entry.tied,
        "submission_id": entry.submission_id,
        "submitter": entry.submitter,
        "model": entry.model,
        "system": entry.system.name,
    }

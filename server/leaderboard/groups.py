"""The tie groups of a board."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules.ranking import Ranked
from rules.tie_groups import Placed, RankedRuns, tie_groups
from server.leaderboard.rows import BoardRow

# Of these metrics a submission's figure is a multiple of what its runs took.
METRICS_OF_RUNS = ("tta", "cost")


def groups_of(
    places: Sequence[Ranked], rows: Mapping[str, BoardRow], *, metric: str
) -> dict[str, dict[str, Any]]:
    """The fields of each board entry that tell how far it can be told from others."""
    if metric not in METRICS_OF_RUNS:
        return {place.submission_id: {} for place in places}
    ranked = [
        RankedRuns(place.submission_id, place.rank, row.run_seconds, _per_second(place, row))
        for place in places
        if place.rank is not None and (row := rows[place.submission_id])
    ]
    grouped = {placed.submission_id: _fields(placed) for placed in tie_groups(ranked)}
    return grouped | {
        place.submission_id: _unranked_fields(rows[place.submission_id])
        for place in places
        if place.rank is None
    }


def _per_second(place: Ranked, row: BoardRow) -> float:
    """What the board's figure is per second of time to accuracy."""
    return place.value / row.tta_seconds if place.value and row.tta_seconds else 1.0


def _fields(placed: Placed) -> dict[str, Any]:
    return {
        "group": placed.group,
        "group_rank": placed.group_rank,
        "p_same_as_leader": placed.p_same_as_leader,
        "single_run": placed.single_run,
    }


def _unranked_fields(row: BoardRow) -> dict[str, Any]:
    fields: dict[str, Any] = {"single_run": len(row.run_seconds) == 1}
    if row.lens_reason is not None and row.eligible and row.status != "rejected":
        fields["unranked_reason"] = row.lens_reason
    return fields

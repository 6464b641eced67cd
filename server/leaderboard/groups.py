"""The tie groups of a board."""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from rules.ranking import Order, Ranked
from rules.tie_groups import Placed, RankedRuns, is_tested, place_in_turn
from server.leaderboard.rows import BoardRow

# Of these metrics a submission's figure is a multiple of what its runs took.
METRICS_OF_RUNS = ("tta", "cost")


class BoardGroups:
    """The groups from the top of a board down to the lowest entry that was asked for.

    After each change of a board its first page is asked for and most of the others are not.
    """

    def __init__(self, order: Order, rows: Mapping[str, BoardRow]) -> None:
        self._rows = rows
        self._is_grouped = order.metric in METRICS_OF_RUNS
        is_any_tested = any(is_tested(rows[key[2]].log_times) for key in order.ranked)
        ranked = map(order.place, range(len(order.ranked)))
        # Nothing in there may know this object: in a circle, boards would outlive their use.
        self._rest = place_in_turn(map(partial(_runs, rows), ranked), is_any_tested=is_any_tested)
        self._found: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def of(self, place: Ranked) -> dict[str, Any]:
        """The fields of a board entry that tell how far it can be told from others."""
        if not self._is_grouped:
            return {}
        submission_id = place.submission_id
        if place.rank is None:
            return _unranked_fields(self._rows[submission_id])
        with self._lock:
            while submission_id not in self._found:
                placed = next(self._rest)
                self._found[placed.submission_id] = _fields(placed)
        return self._found[submission_id]


def _runs(rows: Mapping[str, BoardRow], place: Ranked) -> RankedRuns:
    row = rows[place.submission_id]
    return RankedRuns(
        place.submission_id,
        place.rank or 0,
        row.run_seconds,
        _per_second(place, row),
        times=row.log_times,
    )


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
    says_more = row.lens_reason is not None and not row.withdrawn
    if says_more and row.eligible and row.status != "rejected":
        fields["unranked_reason"] = row.lens_reason
    return fields

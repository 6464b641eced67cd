"""Which numbered rows of a board its runs can tell apart."""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from finishline.rules.ranking.ranking import Order, Ranked
from finishline.rules.statistics.separation import RankedTime, separate
from server.boards.rows import BoardRow

# Of these metrics a submission's figure is a multiple of what its runs took.
METRICS_OF_RUNS = ("tta", "cost")


class BoardSeparation:
    """The separation from the top of a board down to the lowest entry that was asked for.

    After each change of a board its first page is asked for and most of the others are not.
    """

    def __init__(self, order: Order, rows: Mapping[str, BoardRow]) -> None:
        self._rows = rows
        self._is_of_runs = order.metric in METRICS_OF_RUNS
        ranked = map(order.place, range(len(order.ranked)))
        # Nothing in there may know this object: in a circle, boards would outlive their use.
        self._rest = separate(map(partial(_ranked_time, rows), ranked))
        self._found: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def of(self, place: Ranked) -> dict[str, Any]:
        """The fields of a board entry that tell how far it can be told from others."""
        if not self._is_of_runs:
            return {}
        submission_id = place.submission_id
        if place.rank is None:
            return _unranked_fields(self._rows[submission_id])
        with self._lock:
            while submission_id not in self._found:
                found = next(self._rest)
                self._found[found.submission_id] = {
                    "rank": found.number,
                    "not_separated_from": found.not_separated_from,
                    "visible_gap_percent": found.visible_gap_percent,
                }
                if found.shares:
                    self._found[found.submission_id]["tied"] = True
        return self._found[submission_id]


def _ranked_time(rows: Mapping[str, BoardRow], place: Ranked) -> RankedTime:
    row = rows[place.submission_id]
    return RankedTime(
        place.submission_id,
        place.rank or 0,
        place.value or 0.0,
        runs=row.runs,
        spread=row.spread,
        convergence_values=row.convergence_values,
    )


def _unranked_fields(row: BoardRow) -> dict[str, Any]:
    says_more = row.lens_reason is not None and not row.withdrawn
    if says_more and row.eligible and row.status != "rejected":
        return {"unranked_reason": row.lens_reason}
    return {}

"""Links of a leaderboard: the same board sorted, filtered or continued another way."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

FILTER_NAMES = ("metric", "division", "status", "q", "sort", "order", "limit", "clock", "target")
STATUSES = ("verified", "verifying", "claimed", "inconclusive", "rejected")
FIRST_ORDER = ("rank", "asc")
# The metrics of each kind of board, the one it is ranked by unless told otherwise first.
METRICS = {
    "train": {"tta": "time to accuracy", "cost": "cost to accuracy"},
    "inference": {"latency": "latency of one item", "inference_cost": "cost of 10,000 items"},
}


def board_query(filters: Mapping[str, Any], **changes: Any) -> str:
    """The query string of the current filters with changes; empty values are left out."""
    merged = {name: filters.get(name) for name in FILTER_NAMES} | changes
    return urlencode({name: value for name, value in merged.items() if value not in (None, "")})


def kind_link(filters: Mapping[str, Any], kind: str) -> str:
    """The link to a benchmark's board of a kind, with the filters that both kinds have."""
    kept = {name: filters.get(name) for name in ("division", "q")}
    return "?" + board_query(kept, metric=next(iter(METRICS[kind])))


def sort_link(filters: Mapping[str, Any], column: str) -> str:
    """The link that sorts by a column, or turns its order round if it is sorted by already."""
    turn = sort_state(filters, column) == "ascending"
    return "?" + board_query(filters, sort=column, order="desc" if turn else "asc")


def sort_state(filters: Mapping[str, Any], column: str) -> str:
    """The aria-sort value of a column; a board that nobody sorted stands by rank."""
    by, order = filters.get("sort") or FIRST_ORDER[0], filters.get("order") or FIRST_ORDER[1]
    if by != column:
        return "none"
    return "descending" if order == "desc" else "ascending"


def group_leaders(entries: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """The submission that leads each tie group shown: the one that others are tested against."""
    return {
        entry["group"]: entry["submission_id"]
        for entry in entries
        if entry["group"] is not None
        and not entry["single_run"]
        and entry["p_same_as_leader"] is None
    }


def is_filtered(filters: Mapping[str, Any]) -> bool:
    """Whether anything narrows the board down."""
    return any(filters.get(name) not in (None, "") for name in ("division", "status", "q"))

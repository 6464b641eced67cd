"""Links of a leaderboard: the same board sorted, filtered or continued another way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

NARROWING = (
    "division",
    "status",
    "evidence",
    "check",
    "hardware_class",
    "framework",
    "date_from",
    "date_to",
    "q",
)
# What the board would be under another clock, at another target or at other prices.
WHAT_IF = ("clock", "target", "price", "prices_on")
FILTER_NAMES = ("metric", *NARROWING, "sort", "order", "limit", *WHAT_IF, "withdrawn")
FIRST_ORDER = ("rank", "asc")
USUAL_LIMIT = 100
# The metrics of each kind of board, the one it is ranked by unless told otherwise first.
METRICS = {
    "train": {"tta": "time to accuracy", "cost": "cost to accuracy"},
    "inference": {"latency": "latency of one item", "inference_cost": "cost of 10,000 items"},
}


@dataclass(frozen=True)
class Pages:
    """The pages of a board: each a number or None where it leads nowhere else.

    `first_entry` and `last_entry` are the places of what is shown, both 0 where nothing is.
    """

    first: int | None
    previous: int | None
    following: int | None
    last: int
    first_entry: int
    last_entry: int


def board_query(filters: Mapping[str, Any], **changes: Any) -> str:
    """The query string of the current filters with changes; empty values are left out."""
    merged = {name: filters.get(name) for name in FILTER_NAMES} | changes
    return urlencode(
        {name: shown_value(value) for name, value in merged.items() if value not in (None, "")}
    )


def shown_value(value: object) -> str:
    """A value as a person would type it: 95, not 95.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def kind_link(filters: Mapping[str, Any], kind: str) -> str:
    """The link to a benchmark's board of a kind; what was searched for is kept."""
    return "?" + board_query({"q": filters.get("q")}, metric=next(iter(METRICS[kind])))


def division_links(filters: Mapping[str, Any], divisions: Sequence[str]) -> list[tuple[str, str]]:
    """Each division with the link to its board; they are numbered apart, closed first."""
    ordered = sorted(divisions, key=lambda name: (name != "closed", name))
    return [(name, "?" + board_query(filters, division=name)) for name in ordered]


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


def is_filtered(filters: Mapping[str, Any]) -> bool:
    """Whether anything narrows a division's board down."""
    return any(filters.get(name) not in (None, "") for name in NARROWING if name != "division")


def asks_what_if(filters: Mapping[str, Any]) -> bool:
    """Whether the board is asked for under rules or prices that are not the official ones."""
    return any(filters.get(name) not in (None, "") for name in WHAT_IF)


def _limit_of(filters: Mapping[str, Any]) -> int:
    """How many entries a page has; the usual number where what was typed is none and refused."""
    try:
        return max(1, int(filters.get("limit") or USUAL_LIMIT))
    except ValueError:
        return USUAL_LIMIT


def pages_of(board: Mapping[str, Any], filters: Mapping[str, Any]) -> Pages:
    """Where the page of a board that is shown stands among all of them."""
    limit, total = _limit_of(filters), board["total"]
    shown, last = len(board["entries"]), max(1, -(-total // limit))
    start = board.get("first") or (1 if shown else 0)
    page = (start - 1) // limit + 1 if shown else last + 1
    return Pages(
        first=1 if page > 1 else None,
        previous=min(page - 1, last) if page > 1 else None,
        following=page + 1 if page < last else None,
        last=last,
        first_entry=start if shown else 0,
        last_entry=start + shown - 1 if shown else 0,
    )

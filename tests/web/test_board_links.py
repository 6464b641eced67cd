from typing import Any
from urllib.parse import parse_qs

from web.board_table import (
    asks_what_if,
    board_query,
    is_filtered,
    kind_link,
    pages_of,
    sort_link,
    sort_state,
)

FILTERS = {"division": "open", "q": "a&b=c", "sort": "cost", "order": "asc", "cursor": "x"}


def test_sorting_keeps_the_filters_and_starts_at_the_first_page() -> None:
    query = parse_qs(sort_link(FILTERS, "tta").removeprefix("?"))
    assert query == {
        "division": ["open"],
        "q": ["a&b=c"],
        "sort": ["tta"],
        "order": ["asc"],
    }


def test_sorting_twice_turns_the_order_round() -> None:
    assert "order=desc" in sort_link(FILTERS, "cost")
    assert "order=asc" in sort_link(FILTERS | {"order": "desc"}, "cost")


def test_a_column_tells_how_it_is_sorted() -> None:
    assert sort_state(FILTERS, "cost") == "ascending"
    assert sort_state(FILTERS | {"order": "desc"}, "cost") == "descending"
    assert sort_state(FILTERS, "model") == "none"


def test_empty_values_stay_out_of_links() -> None:
    assert board_query({"division": None, "q": "", "metric": "cost"}) == "metric=cost"


def test_an_order_alone_is_no_filter() -> None:
    assert not is_filtered({"sort": "model", "q": "", "division": None})
    assert is_filtered({"status": "verified"})


def test_a_board_that_nobody_sorted_stands_by_rank() -> None:
    assert sort_state({}, "rank") == "ascending"
    assert "order=desc" in sort_link({}, "rank")


def test_the_other_kind_keeps_what_was_searched_for() -> None:
    query = parse_qs(kind_link(FILTERS | {"status": "verified"}, "inference").removeprefix("?"))
    assert query == {"metric": ["latency"], "q": ["a&b=c"]}
    assert kind_link({"metric": "latency"}, "train") == "?metric=tta"


def test_a_number_is_linked_as_it_is_typed() -> None:
    assert board_query({"target": 95.0, "price": 2.5}) == "target=95&price=2.5"


def board(*, entries: int, total: int, first: int | None) -> dict[str, Any]:
    return {"entries": [{}] * entries, "total": total, "first": first}


def test_pages_lead_to_each_other_and_no_further() -> None:
    middle = pages_of(board(entries=100, total=5000, first=101), {})
    assert (middle.first, middle.previous, middle.following, middle.last) == (1, 1, 3, 50)
    assert (middle.first_entry, middle.last_entry) == (101, 200)
    last = pages_of(board(entries=5, total=25, first=21), {"limit": 10})
    assert (last.previous, last.following, last.last, last.last_entry) == (2, None, 3, 25)
    only = pages_of(board(entries=3, total=3, first=1), {})
    assert (only.first, only.following, only.last) == (None, None, 1)
    beyond = pages_of(board(entries=0, total=25, first=None), {"limit": 10, "page": 9})
    assert (beyond.previous, beyond.following, beyond.first_entry) == (3, None, 0)
    for refused in ("abc", "0", "-3", "1.5"):
        assert pages_of(board(entries=0, total=25, first=None), {"limit": refused}).last >= 1


def test_a_price_of_ones_own_is_asked_and_narrows_nothing() -> None:
    assert asks_what_if({"price": 2.5})
    assert not is_filtered({"price": 2.5})
    assert is_filtered({"hardware_class": "8-h100"})

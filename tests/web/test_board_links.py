from urllib.parse import parse_qs

from web.board_links import board_query, is_filtered, kind_link, sort_link, sort_state

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


def test_the_other_kind_keeps_the_filters_that_it_has_too() -> None:
    query = parse_qs(kind_link(FILTERS | {"status": "verified"}, "inference").removeprefix("?"))
    assert query == {"metric": ["latency"], "division": ["open"], "q": ["a&b=c"]}
    assert kind_link({"metric": "latency"}, "train") == "?metric=tta"

"""The price book: which price holds on a day, and how a written price is read."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from finishline.rules.benchmarks.prices import (
    Price,
    PriceEntry,
    is_web_address,
    price_on,
    read_price,
)
from finishline.rules.errors import RuleError

ROW = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "usd_per_hour": 12.5,
    "effective_on": "2026-03-01", "source_url": "https://cloud.example/prices",
}  # fmt: skip


@pytest.fixture
def entry() -> Callable[..., PriceEntry]:
    """Builds entries of one instance: number, price, and the day of March it starts on."""

    def build(number: int, usd_per_hour: float, day: int, **others: Any) -> PriceEntry:
        written = ROW | {"usd_per_hour": usd_per_hour, "effective_on": date(2026, 3, day)}
        return PriceEntry(number, read_price(written | others, file="test"))

    return build


def usd(found: PriceEntry | None) -> float | None:
    return found.price.usd_per_hour if found is not None else None


def on(book: list[PriceEntry], day: int, name: str = "gpu.8") -> float | None:
    return usd(price_on(book, "cloud", name, "north", on=date(2026, 3, day)))


def test_the_latest_price_that_has_started_holds(entry: Callable[..., PriceEntry]) -> None:
    book = [entry(2, 20.0, 10), entry(1, 10.0, 5)]

    assert [on(book, day) for day in (4, 5, 9, 10, 31)] == [None, 10.0, 10.0, 20.0, 20.0]
    assert on(book, 31, "gpu.4") is None
    assert price_on([], "cloud", "gpu.8", "north", on=date(2026, 3, 1)) is None


@pytest.mark.parametrize("field", ["provider", "instance", "region"])
def test_a_price_of_another_name_does_not_hold(
    entry: Callable[..., PriceEntry], field: str
) -> None:
    assert on([entry(1, 10.0, 5, **{field: "Other"})], 6) is None


def test_spot_never_holds_however_late_it_is(entry: Callable[..., PriceEntry]) -> None:
    book = [entry(1, 10.0, 5), entry(2, 3.0, 6, pricing="spot")]

    assert on(book, 7) == 10.0
    assert on(book[1:], 7) is None


def test_of_two_from_the_same_day_the_one_added_later_holds(
    entry: Callable[..., PriceEntry],
) -> None:
    assert on([entry(2, 11.0, 5), entry(1, 10.0, 5)], 5) == 11.0


def test_what_is_superseded_holds_on_no_day(entry: Callable[..., PriceEntry]) -> None:
    wrong, right = entry(1, 100.0, 5), entry(2, 10.0, 7, supersedes=1)

    assert [on([wrong, right], day) for day in (5, 6, 7)] == [None, None, 10.0]
    better = entry(3, 9.0, 5, supersedes=2)
    assert [on([wrong, right, better], day) for day in (5, 8)] == [9.0, 9.0]
    # A correction of the name: the entry under the wrong one holds no more.
    renamed = entry(2, 100.0, 5, instance="gpu.4", supersedes=1)
    assert (on([wrong, renamed], 6), on([wrong, renamed], 6, "gpu.4")) == (None, 100.0)


def test_a_row_is_read_whole() -> None:
    more = {"pricing": "spot", "note": "from the list", "supersedes": 3}

    assert read_price(ROW, file="p.csv") == Price(
        "cloud", "gpu.8", "north", "on_demand", 12.5, date(2026, 3, 1),
        "https://cloud.example/prices",
    )  # fmt: skip
    assert read_price(ROW | more, file="p.csv").supersedes == 3
    assert read_price(ROW | more, file="p.csv").pricing == "spot"


@pytest.mark.parametrize(
    ("field", "value"),
    [("provider", ""), ("provider", None), ("instance", "x" * 201), ("region", "a\nb"),
     ("pricing", "reserved"), ("usd_per_hour", 0), ("usd_per_hour", -1.0),
     ("usd_per_hour", "12.5"), ("usd_per_hour", float("nan")), ("usd_per_hour", 1e8),
     ("effective_on", "1 March"), ("effective_on", None), ("effective_on", 20260301),
     ("source_url", "javascript:alert(1)"), ("source_url", "https://"), ("supersedes", 0),
     ("note", "x" * 2001), ("price", 1)],
)  # fmt: skip
def test_a_wrong_field_is_named_with_file_and_line(field: str, value: object) -> None:
    with pytest.raises(RuleError) as refused:
        read_price(ROW | {field: value}, file="p.csv", line=4)

    error = refused.value
    assert (error.file, error.line, error.field) == ("p.csv", 4, field)
    assert error.expected


@pytest.mark.parametrize(
    ("text", "good"),
    [("https://a.example/x?y#z", True), ("HTTP://a", True), ("ftp://a", False), ("//a", False),
     ("https:///x", False), ("https://a b", False), ("https://?x", False), ("", False)],
)  # fmt: skip
def test_a_source_is_an_address_that_can_be_followed(text: str, good: bool) -> None:
    assert is_web_address(text) is good

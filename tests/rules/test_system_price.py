"""What a system costs: by the price book where it names what was rented, else as stated."""

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.prices import (
    Price,
    PriceBook,
    PriceEntry,
    SystemPrice,
    price_of_system,
    price_on,
)
from finishline.rules.errors import ClaimError
from finishline.rules.submissions.claim import read_claim

CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}
STATED = {"price_usd_per_hour": 30.0, "price_source": "a list", "cloud": CLOUD}
MARCH = st.integers(1, 31).map(lambda day: date(2026, 3, day))


def entry(number: int, usd: float, starts: date, **others: Any) -> PriceEntry:
    names = {"provider": "cloud", "instance": "gpu.8", "region": "north", "pricing": "on_demand"}
    values = names | {"source_url": "https://cloud.example"} | others
    return PriceEntry(number, Price(usd_per_hour=usd, effective_on=starts, **values))


def test_the_book_goes_before_what_a_system_states_from_its_first_day_on() -> None:
    found = entry(1, 12.5, date(2026, 3, 5))
    book = PriceBook([found])

    assert price_of_system(STATED, book, on=date(2026, 3, 5)) == SystemPrice(25.0, found, 2)
    assert price_of_system(STATED, book, on=date(2026, 3, 4)) == SystemPrice(30.0)
    elsewhere = STATED | {"cloud": CLOUD | {"region": "south"}}
    assert price_of_system(elsewhere, book, on=date(2026, 3, 5)) == SystemPrice(30.0)


def test_a_spot_price_never_ranks_but_the_book_may_price_the_same_system() -> None:
    spot = STATED | {"pricing": "spot"}
    assert price_of_system(spot, PriceBook([]), on=date(2026, 3, 5)).usd_per_hour is None

    both = PriceBook(
        [entry(1, 4.0, date(2026, 3, 1), pricing="spot"), entry(2, 10.0, date(2026, 3, 1))]
    )
    assert price_of_system(spot, both, on=date(2026, 3, 5)).usd_per_hour == 20.0


def test_a_system_that_was_not_rented_has_the_price_it_states() -> None:
    book = PriceBook([entry(1, 12.5, date(2026, 3, 5))])
    owned = {"price_usd_per_hour": 3.0, "price_source": "a list"}  # as stored before clouds
    assert price_of_system(owned, book, on=date(2026, 3, 9)) == SystemPrice(3.0)
    assert price_of_system(owned | {"price_usd_per_hour": None}, book, on=date(2026, 3, 9)) == (
        SystemPrice(None)
    )


@given(starts=st.lists(MARCH, max_size=8), on=MARCH, replaced=st.integers(1, 8))
def test_a_sorted_book_finds_what_a_search_of_all_entries_finds(
    starts: list[date], on: date, replaced: int
) -> None:
    entries = [entry(number, number * 1.5, day) for number, day in enumerate(starts, start=1)]
    if replaced <= len(entries):
        late = len(entries) + 1
        entries.append(entry(late, 99.0, date(2026, 3, 15), supersedes=replaced))
    name = ("cloud", "gpu.8", "north")
    assert PriceBook(entries).find(name, on=on) == price_on(entries, *name, on=on)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cloud": {"provider": "cloud", "instance": "gpu.8"}}, "system.cloud.region"),
        ({"cloud": CLOUD | {"count": 0}}, "system.cloud.count"),
        ({"cloud": CLOUD | {"instance": "two\nlines"}}, "system.cloud.instance"),
        ({"cloud": CLOUD | {"zone": "a"}}, "system.cloud.zone"),
        ({"cloud": "gpu.8"}, "system.cloud"),
        ({"pricing": "reserved"}, "system.pricing"),
    ],
)
def test_a_cloud_that_cannot_be_looked_up_is_refused_by_its_field(
    change: dict[str, Any], field: str, read_claim_of: Callable[..., Any]
) -> None:
    with pytest.raises(ClaimError) as refused:
        read_claim_of(**change)
    assert refused.value.field == field


@pytest.fixture
def read_claim_of(digits: Any) -> Callable[..., Any]:
    """Reads a claim whose system has these fields beside the needed ones."""

    def read(**system: Any) -> Any:
        table = {
            "benchmark": "digits", "division": "closed", "model": "m", "framework": "f",
            "system": {"name": "n", "hardware_class": "cpu", "processor": "p"} | system,
            "runs": ["run_0.log"],
        }  # fmt: skip
        return read_claim(json.dumps(table).encode(), file="s.json", benchmarks={"digits": digits})

    return read


def test_a_claim_names_what_was_rented(read_claim_of: Callable[..., Any]) -> None:
    system = read_claim_of(cloud=CLOUD).system
    assert vars(system.cloud) == CLOUD
    assert (system.pricing, read_claim_of().system.cloud) == ("on_demand", None)

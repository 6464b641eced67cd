"""What a system costs by the hour: by the price book where it lists it, else as its claim states.

A cost is computed from this whenever it is read, so a price that is corrected corrects every cost
that rests on it. Source of the rule: prices come from a dated price book; spot never ranks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from rules.price_book import PriceEntry, superseded_by

BookName = tuple[str, str, str]


@dataclass(frozen=True)
class SystemPrice:
    """US dollars for an hour of a whole system that a cost may rest on, None without.

    `entry` is the price that was found in the book, for each of `count` instances; None where the
    claim's own price stands.
    """

    usd_per_hour: float | None
    entry: PriceEntry | None = None
    count: int = 1


class PriceBook:
    """On-demand prices that nothing supersedes, by name."""

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        book = list(entries)
        replaced = superseded_by(book)
        self._entries: defaultdict[BookName, list[PriceEntry]] = defaultdict(list)
        for entry in book:
            price = entry.price
            if entry.number not in replaced and price.pricing == "on_demand":
                name = (price.provider, price.instance, price.region)
                self._entries[name].append(entry)
        for entries_of_name in self._entries.values():
            entries_of_name.sort(key=_order)

    def find(self, name: BookName, *, on: date) -> PriceEntry | None:
        """The price that holds on a day, as `price_on` finds it among all entries."""
        holding = [e for e in self._entries.get(name, ()) if _starts_by(e, on)]
        return holding[-1] if holding else None


def _starts_by(entry: PriceEntry, day: date) -> bool:
    return entry.price.effective_on <= day


def _order(entry: PriceEntry) -> tuple[date, int]:
    return entry.price.effective_on, entry.number


def price_of_system(system: Mapping[str, Any], book: PriceBook, *, on: date) -> SystemPrice:
    """The price that a cost rests on, for a system as a claim's JSON has it.

    It is the book's for the instances that the system names, as it held on the day; else the
    system's own, unless that is a spot price.
    """
    cloud = system.get("cloud")
    if cloud is not None:
        entry = book.find((cloud["provider"], cloud["instance"], cloud["region"]), on=on)
        if entry is not None:
            count = cloud["count"]
            return SystemPrice(entry.price.usd_per_hour * count, entry, count)
    return SystemPrice(stated_price_usd_per_hour(system))


def stated_price_usd_per_hour(system: Mapping[str, Any]) -> float | None:
    """The price a system states, as far as it may rank: a spot price never does."""
    if system.get("pricing", "on_demand") == "spot":
        return None
    price: float | None = system["price_usd_per_hour"]
    return price

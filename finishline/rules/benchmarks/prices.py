"""The price book: the price of an instance by provider, region and day, and the cost of a time."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from finishline.rules.benchmarks.accelerators import (
    A_CLASS,
    CLASS_NAME,
    NAME_LENGTHS,
    Pricing,
    accelerator_of_system,
    accelerators_of_cloud,
    are_of_cloud,
)
from finishline.rules.table import Day, Printable, Table
from finishline.rules.text import shown

HIGHEST_USD_PER_HOUR = 1e7
ONE_LINE = r"^\S(.*\S)?$"
SOURCE_LENGTH = 2000
NOTE_LENGTH = 2000
WEB_ADDRESS = r'^[Hh][Tt][Tt][Pp][Ss]?://[!-"$-.0->@-~][!-~]*$'  # In ASCII, with a host.


def _like(pattern: str, text: str, *, expected: str) -> str:
    if not text.isprintable() or not re.fullmatch(pattern, text):
        raise ValueError(f"got {shown(text)}; expected {expected}")
    return text


def _is_like(pattern: str, expected: str) -> tuple[AfterValidator, Any]:
    """A check with a sentence of its own, and the pattern for the API's document."""
    check = AfterValidator(partial(_like, pattern, expected=expected))
    return check, Field(json_schema_extra={"pattern": pattern})


Line = Annotated[str, *_is_like(ONE_LINE, "one line without spaces around it")]
WebAddress = Annotated[str, *_is_like(WEB_ADDRESS, "an http or https address")]
ClassName = Annotated[str, *_is_like(f"^{CLASS_NAME}$", A_CLASS)]


class Price(Table):
    """Price of one instance from a day on, and the page that states it.

    With `supersedes` it replaces an earlier entry that was wrong. The instance belongs to
    `hardware_class`, None where its known accelerators tell.
    """

    provider: Line = Field(max_length=NAME_LENGTHS["provider"])
    instance: Line = Field(max_length=NAME_LENGTHS["instance"])
    region: Line = Field(max_length=NAME_LENGTHS["region"])
    pricing: Pricing = "on_demand"
    usd_per_hour: float = Field(gt=0, le=HIGHEST_USD_PER_HOUR)
    effective_on: Day
    source_url: WebAddress = Field(max_length=SOURCE_LENGTH)
    note: Printable | None = Field(None, min_length=1, max_length=NOTE_LENGTH)
    supersedes: int | None = Field(None, ge=1, le=2**31 - 1)
    hardware_class: ClassName | None = None


@dataclass(frozen=True)
class PriceEntry:
    """A price in the book; `number` counts entries in the order they were added."""

    number: int
    price: Price


def superseded_by(entries: Sequence[PriceEntry]) -> dict[int, int]:
    """The number of the entry that stands in for another, by the other's number."""
    return {
        entry.price.supersedes: entry.number
        for entry in entries
        if entry.price.supersedes is not None
    }


BookName = tuple[str, str, str]


@dataclass(frozen=True)
class SystemPrice:
    """US dollars for an hour of a whole system that a cost may rest on, None without.

    `entry` is the price that was found in the book, for each of `count` instances; None where the
    claim's own price stands. `why_unranked` is why no row ranks by this price, None if it may.
    """

    usd_per_hour: float | None
    entry: PriceEntry | None = None
    count: int = 1
    why_unranked: str | None = None


class PriceBook:
    """On-demand prices that nothing supersedes, by name.

    A superseded entry never holds, also on days before the other one starts. Spot prices never
    rank, so they never hold.
    """

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        book = list(entries)
        replaced = superseded_by(book)
        self._entries: defaultdict[BookName, list[PriceEntry]] = defaultdict(list)
        for entry in book:
            price = entry.price
            if entry.number not in replaced and price.pricing != "spot":
                name = (price.provider, price.instance, price.region)
                self._entries[name].append(entry)
        for entries_of_name in self._entries.values():
            entries_of_name.sort(key=lambda entry: (entry.price.effective_on, entry.number))

    def find(self, name: BookName, *, on: date, hardware_class: str = "") -> PriceEntry | None:
        """The price that holds on a day: the latest that starts by then, or None.

        Of two from the same day the one added later holds. One of the hardware class, or of none,
        goes before one of another class.
        """
        holding = [e for e in self._entries.get(name, ()) if e.price.effective_on <= on]
        fitting = [e for e in holding if e.price.hardware_class in (None, hardware_class)]
        return next(reversed(fitting or holding), None)

    def holding(self, on: date) -> set[int]:
        """The numbers of all entries that hold on a day, one of each name and hardware class."""
        latest = {
            (name, entry.price.hardware_class): entry.number
            for name, entries in self._entries.items()
            for entry in entries
            if entry.price.effective_on <= on
        }
        return set(latest.values())


def price_of_system(system: Mapping[str, Any], book: PriceBook, *, on: date) -> SystemPrice:
    """The price that a cost rests on, for a system as a claim's JSON has it.

    It is the book's for the instances that the system names, as it held on the day; else the
    system's own, unless that is a spot price. Only a price of the book ranks.
    """
    cloud = system.get("cloud")
    if cloud is not None:
        name = (cloud["provider"], cloud["instance"], cloud["region"])
        entry = book.find(name, on=on, hardware_class=system["hardware_class"])
        if entry is not None:
            count, why = cloud["count"], _why_not_of_class(system, entry.price)
            return SystemPrice(entry.price.usd_per_hour * count, entry, count, why)
    why = "priced by its submitter: the price book has no price for this system"
    return SystemPrice(stated_price_usd_per_hour(system), why_unranked=why)


def _why_not_of_class(system: Mapping[str, Any], price: Price) -> str | None:
    """Why an instance is not known to be a machine of a system's hardware class, None if it is.

    It belongs to the class that its price names, else to one with its known accelerators.
    """
    instance, named = price.instance, price.hardware_class
    if named is not None:
        own = system["hardware_class"]
        return None if named == own else f"{instance} belongs to hardware class {named}, not {own}"
    rented = accelerators_of_cloud(system["cloud"])
    if rented is not None and are_of_cloud(accelerator_of_system(system), rented):
        return None
    return f"the price book does not say that {instance} belongs to this hardware class"


def stated_price_usd_per_hour(system: Mapping[str, Any]) -> float | None:
    """The price a system states, as far as it may rank: a spot price never does."""
    if system.get("pricing", "on_demand") == "spot":
        return None
    price: float | None = system["price_usd_per_hour"]
    return price


def training_cost_usd(tta_seconds: float | None, price_usd_per_hour: float | None) -> float | None:
    """US dollars to the target, or None without a time or a price (then not ranked by cost).

    Source: dawn-bench-entries README, "costPerHour".
    """
    if tta_seconds is None or price_usd_per_hour is None:
        return None
    return tta_seconds / 3600.0 * price_usd_per_hour


def system_price_usd_per_hour(usd_per_accelerator_hour: float, accelerators: int) -> float:
    """The price of a whole system, which without accelerators counts as one."""
    return usd_per_accelerator_hour * max(1, accelerators)


def inference_cost_usd_per_10000(cost_usd_per_item: float | None) -> float | None:
    """US dollars for 10,000 items, the unit of the published board; None without a cost."""
    return None if cost_usd_per_item is None else cost_usd_per_item * 10_000

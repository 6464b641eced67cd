"""The price book: the price of an instance by provider, region and day, and the cost of a time."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, cast

from finishline.rules.benchmarks.accelerators import (
    accelerator_of_system,
    accelerators_of_cloud,
    are_of_cloud,
)
from finishline.rules.errors import RuleError
from finishline.rules.fields import Fields

Pricing = Literal["on_demand", "spot"]
PRICINGS: tuple[Pricing, ...] = ("on_demand", "spot")
HIGHEST_USD_PER_HOUR = 1e7
NAME_LENGTHS = {"provider": 100, "instance": 200, "region": 100}
CLASS_NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
A_CLASS = "a short name of lower-case letters, digits, dots and hyphens"
SOURCE_LENGTH = 2000
NOTE_LENGTH = 2000
A_DAY = "YYYY-MM-DD, for example 2026-11-21"
AN_ADDRESS = "an http or https address"


@dataclass(frozen=True)
class Price:
    """Price of one instance from a day on, and the page that states it.

    `supersedes` is the number of the entry that this one stands in for, None for most. The instance
    belongs to `hardware_class`, None where its known accelerators tell.
    """

    provider: str
    instance: str
    region: str
    pricing: Pricing
    usd_per_hour: float
    effective_on: date
    source_url: str
    note: str | None = None
    supersedes: int | None = None
    hardware_class: str | None = None


@dataclass(frozen=True)
class PriceEntry:
    """A price in the book; `number` counts entries in the order they were added."""

    number: int
    price: Price


def price_on(
    entries: Iterable[PriceEntry], provider: str, instance: str, region: str, *, on: date
) -> PriceEntry | None:
    """The on-demand price that holds on a day: the latest that starts by then, or None.

    Of two from the same day the one added later holds. A superseded entry never holds, also on days
    before the other one starts. Spot prices never rank, so they never hold.
    """
    book = list(entries)
    superseded = superseded_by(book)
    wanted = (provider, instance, region)
    holding = [
        entry
        for entry in book
        if entry.number not in superseded
        and entry.price.pricing != "spot"
        and (entry.price.provider, entry.price.instance, entry.price.region) == wanted
        and entry.price.effective_on <= on
    ]
    return max(holding, key=lambda entry: (entry.price.effective_on, entry.number), default=None)


def superseded_by(entries: Sequence[PriceEntry]) -> dict[int, int]:
    """The number of the entry that stands in for another, by the other's number."""
    return {
        entry.price.supersedes: entry.number
        for entry in entries
        if entry.price.supersedes is not None
    }


def is_web_address(text: str) -> bool:
    """Whether a text is an http or https address with a host and without a blank."""
    scheme, separator, rest = text.partition("://")
    host = rest.split("/", 1)[0].split("?", 1)[0].split("#", 1)[0]
    plain = all(letter.isprintable() and not letter.isspace() for letter in text)
    return scheme.lower() in ("http", "https") and bool(separator and host) and plain


def read_price(
    table: Mapping[str, Any], *, file: str, line: int | None = None, path: str = ""
) -> Price:
    """A price from a row of a file. Raises RuleError with file, line, field and expectation.

    `path` is where the row stands in a document without lines to name. A day is a date of TOML or
    a text as 2026-11-21.
    """
    try:
        return _read_price(Fields(table, file=file, path=path))
    except RuleError as error:
        raise RuleError(
            error.message, file=file, line=line, field=error.field, expected=error.expected
        ) from None


def _read_price(fields: Fields) -> Price:
    price = Price(
        provider=book_name(fields, "provider"),
        instance=book_name(fields, "instance"),
        region=book_name(fields, "region"),
        pricing=cast(Pricing, fields.choice("pricing", PRICINGS, default="on_demand")),
        usd_per_hour=_usd_per_hour(fields),
        effective_on=_day(fields, "effective_on"),
        source_url=_address(fields, "source_url"),
        note=_note(fields),
        supersedes=fields.optional_integer("supersedes", minimum=1),
        hardware_class=read_class(fields) if fields.has("hardware_class") else None,
    )
    fields.refuse_unknown()
    return price


def read_class(fields: Fields) -> str:
    """The name of a hardware class."""
    name = fields.text("hardware_class")
    if not re.fullmatch(CLASS_NAME, name):
        raise fields.fail("hardware_class", f"got {name[:60]!r}", expected=A_CLASS)
    return name


def book_name(fields: Fields, name: str) -> str:
    """A provider, an instance, a region: one printable line of limited length."""
    longest = NAME_LENGTHS[name]
    text = fields.text(name)
    if len(text) > longest or not text.isprintable():
        expected = f"one line of at most {longest} characters"
        raise fields.fail(name, "not a name", expected=expected)
    return text


def _usd_per_hour(fields: Fields) -> float:
    usd = fields.number("usd_per_hour", minimum=0.0, maximum=HIGHEST_USD_PER_HOUR)
    if usd == 0:
        raise fields.fail("usd_per_hour", "got 0", expected="a price above 0")
    return usd


def _day(fields: Fields, name: str) -> date:
    value = fields.raw(name)
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise fields.fail(name, f"got {value!r:.60}", expected=A_DAY) from None


def _address(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if not is_web_address(text) or len(text) > SOURCE_LENGTH:
        raise fields.fail(name, f"got {text!r:.60}", expected=AN_ADDRESS)
    return text


def _note(fields: Fields) -> str | None:
    text = fields.optional_text("note")
    if text is not None and len(text) > NOTE_LENGTH:
        raise fields.fail("note", "too long", expected=f"at most {NOTE_LENGTH} characters")
    return text


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
    """On-demand prices that nothing supersedes, by name."""

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
            entries_of_name.sort(key=_order)

    def find(self, name: BookName, *, on: date, hardware_class: str = "") -> PriceEntry | None:
        """The price that holds on a day, as `price_on` finds it among all entries.

        One of the hardware class, or of none, goes before one of another class.
        """
        holding = [e for e in self._entries.get(name, ()) if _starts_by(e, on)]
        fitting = [e for e in holding if e.price.hardware_class in (None, hardware_class)]
        return next(reversed(fitting or holding), None)


def _starts_by(entry: PriceEntry, day: date) -> bool:
    return entry.price.effective_on <= day


def _order(entry: PriceEntry) -> tuple[date, int]:
    return entry.price.effective_on, entry.number


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

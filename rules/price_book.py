"""The price book: what an instance costs, by provider and region, from which day, and says who.

Nothing in it is ever changed: a correction is a later entry, or one that supersedes the wrong one.
Source of the rule: prices are dated, on-demand and sourced; spot never ranks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, cast

from rules.errors import RuleError
from rules.fields import Fields

Pricing = Literal["on_demand", "spot"]
PRICINGS: tuple[Pricing, ...] = ("on_demand", "spot")
HIGHEST_USD_PER_HOUR = 1e7
NAME_LENGTHS = {"provider": 100, "instance": 200, "region": 100}
SOURCE_LENGTH = 2000
NOTE_LENGTH = 2000
A_DAY = "a day as 2026-11-21"
AN_ADDRESS = "an http or https address"


@dataclass(frozen=True)
class Price:
    """What one instance costs from a day on, and the page that says so.

    `supersedes` is the number of the entry that this one stands in for, None for most.
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


@dataclass(frozen=True)
class PriceEntry:
    """A price in the book; `number` counts entries in the order they were added."""

    number: int
    price: Price


def price_on(
    entries: Iterable[PriceEntry], provider: str, instance: str, region: str, *, on: date
) -> PriceEntry | None:
    """The on-demand price that holds on a day: the latest that starts on it or before, or None.

    Of two from the same day the one added later holds. What another entry supersedes never does,
    also on days before the other one starts. Spot prices never rank, so they never hold.
    """
    book = list(entries)
    superseded = superseded_by(book)
    wanted = (provider, instance, region)
    holding = [
        entry
        for entry in book
        if entry.number not in superseded
        and entry.price.pricing == "on_demand"
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
    """A price from a row of a file. Raises RuleError with file, line, field and what was expected.

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
    )
    fields.refuse_unknown()
    return price


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
        raise fields.fail(name, "not a page to look at", expected=AN_ADDRESS)
    return text


def _note(fields: Fields) -> str | None:
    text = fields.optional_text("note")
    if text is not None and len(text) > NOTE_LENGTH:
        raise fields.fail("note", "too long", expected=f"at most {NOTE_LENGTH} characters")
    return text

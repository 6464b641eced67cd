"""A board at other prices: the visitor's own of an accelerator, or the book's of one day."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from finishline.rules.benchmarks.prices import (
    PriceBook,
    price_of_system,
    system_price_usd_per_hour,
    training_cost_usd,
)
from server.boards.rows import BoardRow, is_own_price
from server.boards.schemas import BoardQuery, PriceView

# US dollars for an accelerator and hour, or the day whose prices hold.
OtherPrice = float | date


def price_of(query: BoardQuery) -> OtherPrice | None:
    """The prices that a query asks for; an inference has no time to price."""
    if query.kind != "train":
        return None
    return query.prices_on if query.price is None else query.price


def price_view(price: OtherPrice) -> PriceView:
    """What other prices change, in words too."""
    if isinstance(price, date):
        return PriceView(
            usd_per_accelerator_hour=None,
            prices_on=price,
            note=f"Not the official costs: systems that name what was rented are at the price "
            f"book's prices of {price.isoformat()}, the others as stated.",
        )
    return PriceView(
        usd_per_accelerator_hour=price,
        prices_on=None,
        note=f"Not the official costs: at {_dollars(price)} per "
        "accelerator-hour. A system that states no accelerators counts as one.",
    )


def priced_rows(
    rows: Mapping[str, BoardRow], price: OtherPrice, book: PriceBook
) -> dict[str, BoardRow]:
    """The rows with what their times cost at other prices."""
    return {
        name: _at_day(row, price, book) if isinstance(price, date) else _at_own_price(row, price)
        for name, row in rows.items()
    }


def _at_own_price(row: BoardRow, usd_per_accelerator_hour: float) -> BoardRow:
    accelerators = row.shown["system"]["accelerator_count"] or 0
    usd_per_hour = system_price_usd_per_hour(usd_per_accelerator_hour, accelerators)
    return _costing(row, usd_per_hour, number=None, is_own=False)


def _at_day(row: BoardRow, day: date, book: PriceBook) -> BoardRow:
    found = price_of_system(row.shown["system"], book, on=day)
    number = None if found.entry is None else found.entry.number
    is_own = is_own_price(found, row.shown["evidence"])
    return _costing(row, found.usd_per_hour, number=number, is_own=is_own)


def _costing(
    row: BoardRow, usd_per_hour: float | None, *, number: int | None, is_own: bool
) -> BoardRow:
    cost = training_cost_usd(row.standing.tta_seconds, usd_per_hour)
    return replace(
        row,
        standing=row.standing._replace(cost_usd=cost, price_is_own=is_own),
        changed=dict(row.changed) | {"cost_price": number},
    )


def _dollars(usd: float) -> str:
    """Whole cents where that is the price, else every digit that was given."""
    return f"${usd:.2f}" if round(usd, 2) == usd else f"${usd:g}"

"""Reading the price book."""

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.prices import PriceEntry, price_on, superseded_by
from server.csv_cells import csv_cell
from server.errors import NotFoundError
from server.models import PriceRow
from server.prices.schemas import PriceQuery, PriceView, entry_of, price_view

NAMES = ("provider", "instance", "region", "pricing")


def find_price(session: Session, price_id: int) -> PriceRow:
    """An entry by its number. Raises NotFoundError."""
    row = session.get(PriceRow, price_id)
    if row is None:
        raise NotFoundError(f"There is no price {price_id}.")
    return row


def list_prices(session: Session, query: PriceQuery) -> list[PriceView]:
    """Entries by name, the latest of each first; with `on` those a cost of that day rests on."""
    rows = session.scalars(
        select(PriceRow).order_by(
            PriceRow.provider,
            PriceRow.instance,
            PriceRow.region,
            PriceRow.pricing,
            PriceRow.effective_on.desc(),
            PriceRow.id.desc(),
        )
    ).all()
    book = [entry_of(row) for row in rows]
    holding = _holding(book, query.on) if query.on is not None else None
    replaced = superseded_by(book)
    return [
        price_view(row, replaced.get(row.id))
        for row in rows
        if _is_asked_for(row, query) and (holding is None or row.id in holding)
    ]


def _is_asked_for(row: PriceRow, query: PriceQuery) -> bool:
    wanted = ((name, getattr(query, name)) for name in NAMES)
    return all(value is None or getattr(row, name) == value for name, value in wanted)


def _holding(book: Sequence[PriceEntry], on: date) -> set[int]:
    replaced = superseded_by(book)
    by_name = defaultdict(list)
    for entry in book:
        if entry.number not in replaced:
            price = entry.price
            by_name[(price.provider, price.instance, price.region)].append(entry)
    found = (price_on(entries, *name, on=on) for name, entries in by_name.items())
    return {entry.number for entry in found if entry is not None}


def prices_csv(views: Sequence[PriceView]) -> str:
    """Entries as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO()
    columns = list(PriceView.model_fields)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for view in views:
        row = view.model_dump(mode="json")
        writer.writerow({name: csv_cell(row[name]) for name in columns})
    return text.getvalue()

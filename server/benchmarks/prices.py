"""The price book: read it, add to it, and price systems by it."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from threading import Lock
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.accelerators import accelerators_of_cloud, are_of_cloud
from finishline.rules.benchmarks.prices import Price, stated_price_usd_per_hour
from server.base.board_versions import raise_all_board_versions
from server.base.csv_cells import csv_cell
from server.base.database import state_of, utc_now
from server.base.errors import ConflictError, no_such
from server.base.models import PriceRow, Submission
from server.benchmarks.views import (
    PriceCreate,
    PriceEntry,
    PriceQuery,
    PriceView,
    entry_of,
    price_view,
)
from server.people.audit import Subject, record, record_new, set_columns
from server.people.dependencies import Caller
from web.names import accelerator_of_system

NAMES = ("provider", "instance", "region", "pricing")


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

    def of_class(self, hardware_class: str, *, on: date) -> PriceEntry | None:
        """The price that an organiser bound to a hardware class, as it held on a day, or None."""
        bound = [
            entry
            for entries in self._entries.values()
            for entry in entries
            if entry.price.hardware_class == hardware_class and entry.price.effective_on <= on
        ]
        return max(bound, key=lambda e: (e.price.effective_on, e.number), default=None)

    def holding(self, on: date) -> set[int]:
        """The numbers of all entries that hold on a day, one of each name and hardware class."""
        latest = {
            (name, entry.price.hardware_class): entry.number
            for name, entries in self._entries.items()
            for entry in entries
            if entry.price.effective_on <= on
        }
        return set(latest.values())


def price_of_class(
    hardware_class: str | None, system: Mapping[str, Any], book: PriceBook, *, on: date
) -> SystemPrice:
    """The price that the cost of a measured time rests on.

    It is the price of the class that measured it. Without one it is the price of the system.
    """
    entry = book.of_class(hardware_class or "", on=on)
    if entry is None:
        return price_of_system(system, book, on=on)
    return SystemPrice(entry.price.usd_per_hour, entry)


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


def system_price_usd_per_hour(usd_per_accelerator_hour: float, accelerators: int) -> float:
    """The price of a whole system, which without accelerators counts as one."""
    return usd_per_accelerator_hour * max(1, accelerators)


def find_price(session: Session, price_id: int) -> PriceRow:
    """Read an entry by its number. Raises NotFoundError."""
    row = session.get(PriceRow, price_id)
    if row is None:
        raise no_such("price", price_id)
    return row


def list_prices(session: Session, query: PriceQuery) -> list[PriceView]:
    """List entries by name, the latest of each first; with `on` those that price that day."""
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
    holding = PriceBook(book).holding(query.on) if query.on is not None else None
    replaced = superseded_by(book)
    return [
        price_view(row, replaced.get(row.id))
        for row in rows
        if _is_asked_for(row, query) and (holding is None or row.id in holding)
    ]


def _is_asked_for(row: PriceRow, query: PriceQuery) -> bool:
    wanted = ((name, getattr(query, name)) for name in NAMES)
    return all(value is None or getattr(row, name) == value for name, value in wanted)


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


def add_price(session: Session, caller: Caller, wanted: PriceCreate) -> PriceRow:
    """Add an entry; written to the audit log.

    Raises ConflictError if an equal entry is in the book or the superseded one has a successor
    already, NotFoundError if there is no entry to supersede.
    """
    known = _the_same(session, wanted)
    if known is not None:
        raise ConflictError(f"This price is already in the price book, as number {known}.")
    row = _add(session, caller, wanted)
    raise_all_board_versions(session)
    record_new(session, caller, "price.add", row, reason=wanted.note)
    return row


def import_prices(
    session: Session, caller: Caller, wanted: Sequence[PriceCreate]
) -> tuple[list[PriceRow], int]:
    """Add the entries that the book lacks, in one transaction; returns them, and how many it had.

    A repeated import adds nothing. Raises as `add_price` does.
    """
    added: list[PriceRow] = []
    for price in wanted:
        if _the_same(session, price) is None:
            added.append(_add(session, caller, price))
    if added:
        raise_all_board_versions(session)
        record(
            session,
            caller,
            "price.import",
            Subject("price", f"{added[0].id}-{added[-1].id}"),
            reason=None,
            before=None,
            after={"prices": {str(row.id): set_columns(row) for row in added}},
        )
    return added, len(wanted) - len(added)


def _add(session: Session, caller: Caller, wanted: PriceCreate) -> PriceRow:
    if wanted.supersedes is not None:
        _require_standing(session, wanted.supersedes)
    row = PriceRow(**wanted.model_dump(), added_by=caller.user_id, added_at=utc_now())
    session.add(row)
    session.flush()
    return row


def _require_standing(session: Session, price_id: int) -> None:
    find_price(session, price_id)
    successor = session.scalar(select(PriceRow.id).where(PriceRow.supersedes == price_id))
    if successor is not None:
        raise ConflictError(
            f"Price {price_id} is superseded by number {successor} already; supersede that one."
        )


def _the_same(session: Session, wanted: PriceCreate) -> int | None:
    columns = (getattr(PriceRow, name) == value for name, value in wanted.model_dump().items())
    return session.scalar(select(PriceRow.id).where(*columns).limit(1))


NO_PRICES = PriceBook(())


@dataclass
class PriceBookCache:
    """The book while `last` is its latest entry: entries are only ever added."""

    last: int = 0
    book: PriceBook = NO_PRICES
    lock: Lock = field(default_factory=Lock)


def read_book(session: Session) -> PriceBook:
    """Read the price book from the cache, or from the database if it has a later entry."""
    last = session.scalar(select(func.max(PriceRow.id))) or 0
    cache = state_of(session, PriceBookCache)
    with cache.lock:
        if cache.last == last:
            return cache.book
    entries = [entry_of(row) for row in session.scalars(select(PriceRow))]
    book = PriceBook(entries)
    # A writing session's rows may be rolled back, and their numbers given to other entries.
    if not session.connection().get_execution_options().get("finishline_write", False):
        with cache.lock:
            cache.last, cache.book = max((e.number for e in entries), default=0), book
    return book


class BookCosts:
    """Prices of many submissions; the book is read once, and only if a system needs it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._book: PriceBook | None = None

    def price(self, submission: Submission | Row[Any]) -> SystemPrice:
        """Price per hour of a submission's system on the day it was submitted."""
        return self.price_on(submission.system, day_of(submission))

    def of_class(self, row: Row[Any]) -> SystemPrice:
        """Price per hour of the hardware class that measured a row, on the day it was measured."""
        day = (row.measured_at or row.submitted_at).date()
        return price_of_class(row.hardware_class, row.system, self._read(), on=day)

    def price_on(self, system: Mapping[str, Any], day: date) -> SystemPrice:
        """Price per hour of a system on a day."""
        if system.get("cloud") is None:
            return price_of_system(system, NO_PRICES, on=day)
        return price_of_system(system, self._read(), on=day)

    def _read(self) -> PriceBook:
        if self._book is None:
            self._book = read_book(self._session)
        return self._book


def price_of_submission(session: Session, submission: Submission) -> SystemPrice:
    """Price per hour of a submission's system on the day it was submitted."""
    return BookCosts(session).price(submission)


def day_of(submission: Submission | Row[Any]) -> date:
    """Day on which a result was published, else the day it was sent, in UTC."""
    return submission.published_on or submission.submitted_at.date()

"""The price book: read it, add to it, and price systems by it."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field
from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.benchmarks.accelerators import Pricing, accelerators_of_cloud, are_of_cloud
from finishline.rules.benchmarks.prices import Price, stated_price_usd_per_hour
from server.base.board_versions import raise_all_board_versions
from server.base.database import find_row, utc_now
from server.base.errors import ConflictError
from server.base.forms import NO_FLAG, Body, DayField, example
from server.base.models import PriceRow, Submission
from server.base.paging import csv_cell
from server.people.audit import Subject, record, record_new, set_columns
from server.people.callers import Caller
from server.people.declared import Form, Routes
from web.names import accelerator_of_system

BookName = tuple[str, str, str]
LARGEST_IMPORT = 1000
CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}}, "description": "The same entries as CSV."}
}
router = Routes(tags=["prices"])
CONSOLE = "/console/prices"


class PriceCreate(Price):
    """A price, the day it takes effect, and the page it is from.

    With `supersedes` it replaces an earlier, wrong entry. `hardware_class` is the class of the
    instance. Without a class, costs rank only where its known accelerators are the class's.
    """

    model_config = example(
        provider="example-cloud",
        instance="gpu.8xlarge",
        region="eu-north",
        pricing="on_demand",
        usd_per_hour=31.22,
        effective_on="2026-11-01",
        source_url="https://cloud.example/prices",
    )

    supersedes: Annotated[int, Field(ge=1, le=2**31 - 1), NO_FLAG] | None = None


class PriceView(Schema):
    """An entry of the book. `superseded_by` names its replacement.

    `ranks` is whether a cost may rest on it: spot prices and superseded prices never rank.
    """

    id: int
    provider: str
    instance: str
    region: str
    pricing: Pricing
    usd_per_hour: float
    effective_on: date
    source_url: str
    note: str | None
    supersedes: int | None
    hardware_class: str | None
    superseded_by: int | None
    ranks: bool
    added_by: str
    added_at: datetime


class PriceList(Schema):
    """Entries by provider, instance, region and kind, the latest of each first."""

    prices: list[PriceView]


class PricesImport(Body):
    """Prices to add, all or none. Known prices are left out."""

    prices: list[PriceCreate] = Field(min_length=1, max_length=LARGEST_IMPORT)


class PricesImported(Schema):
    """The added prices, and the number of known prices."""

    added: list[PriceView]
    already_there: int


class PriceQuery(Body):
    """Filter of the price book: by exact names, and with `on` only prices in force that day."""

    provider: str | None = Field(default=None, max_length=100)
    instance: str | None = Field(default=None, max_length=200)
    region: str | None = Field(default=None, max_length=100)
    pricing: Pricing | None = None
    on: DayField = None


Asked = Annotated[PriceQuery, Query()]


@dataclass(frozen=True)
class SystemPrice:
    """The price of a whole system, in US dollars per hour, that a cost may rest on.

    `entry` is the book's price for each of `count` instances, None for a claim's stated price.
    `why_unranked` says why costs by this price can't rank.
    """

    usd_per_hour: float | None
    entry: PriceRow | None = None
    count: int = 1
    why_unranked: str | None = None


class PriceBook:
    """On-demand prices by name that are not superseded."""

    def __init__(self, entries: Iterable[PriceRow]) -> None:
        book = sorted(entries, key=lambda entry: (entry.effective_on, entry.id))
        replaced = {entry.supersedes for entry in book}
        self._entries: defaultdict[BookName, list[PriceRow]] = defaultdict(list)
        for entry in book:
            if entry.id not in replaced and entry.pricing != "spot":
                self._entries[entry.provider, entry.instance, entry.region].append(entry)

    def find(self, name: BookName, *, on: date, hardware_class: str = "") -> PriceRow | None:
        """Find the price on a day: the latest that starts by then, added last.

        Prices of the hardware class, or of no class, go before prices of another class.
        """
        holding = [e for e in self._entries.get(name, ()) if e.effective_on <= on]
        fitting = [e for e in holding if e.hardware_class in (None, hardware_class)]
        return next(reversed(fitting or holding), None)

    def of_class(self, hardware_class: str, *, on: date) -> PriceRow | None:
        """Find the price bound to a hardware class by an organiser, as it held on a day."""
        bound = [
            entry
            for entries in self._entries.values()
            for entry in entries
            if entry.hardware_class == hardware_class and entry.effective_on <= on
        ]
        return max(bound, key=lambda entry: (entry.effective_on, entry.id), default=None)

    def holding(self, on: date) -> set[int]:
        """Return the ids of the entries holding on a day, one per name and hardware class."""
        latest = {
            (name, entry.hardware_class): entry.id
            for name, entries in self._entries.items()
            for entry in entries
            if entry.effective_on <= on
        }
        return set(latest.values())


NO_PRICES = PriceBook(())


def price_of_class(
    hardware_class: str | None, system: Mapping[str, Any], book: PriceBook, *, on: date
) -> SystemPrice:
    """Price a measured time by the class that measured it, else by its system."""
    entry = book.of_class(hardware_class or "", on=on)
    if entry is None:
        return price_of_system(system, book, on=on)
    return SystemPrice(entry.usd_per_hour, entry)


def price_of_system(system: Mapping[str, Any], book: PriceBook, *, on: date) -> SystemPrice:
    """Price a claim's system: by the book for its instances on a day, else as it states.

    Only prices of the book rank. A stated spot price is left out.
    """
    cloud = system.get("cloud")
    if cloud is not None:
        name = (cloud["provider"], cloud["instance"], cloud["region"])
        entry = book.find(name, on=on, hardware_class=system["hardware_class"])
        if entry is not None:
            count, why = cloud["count"], _why_not_of_class(system, entry)
            return SystemPrice(entry.usd_per_hour * count, entry, count, why)
    why = "priced by its submitter: the price book has no price for this system"
    return SystemPrice(stated_price_usd_per_hour(system), why_unranked=why)


def _why_not_of_class(system: Mapping[str, Any], price: PriceRow) -> str | None:
    """Say why an instance may be outside a system's hardware class, or None if it is inside."""
    instance, named = price.instance, price.hardware_class
    if named is not None:
        own = system["hardware_class"]
        return None if named == own else f"{instance} belongs to hardware class {named}, not {own}"
    rented = accelerators_of_cloud(system["cloud"])
    if rented is not None and are_of_cloud(accelerator_of_system(system), rented):
        return None
    return f"the price book does not say that {instance} belongs to this hardware class"


def system_price_usd_per_hour(usd_per_accelerator_hour: float, accelerators: int) -> float:
    """Price a whole system. Without accelerators it counts as one."""
    return usd_per_accelerator_hour * max(1, accelerators)


def read_book(session: Session) -> PriceBook:
    """Read the price book."""
    return PriceBook(session.scalars(select(PriceRow)))


class BookCosts:
    """Prices many submissions. Reads the book once, and only if a system needs it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def _book(self) -> PriceBook:
        return read_book(self._session)

    def price(self, submission: Submission | Row[Any]) -> SystemPrice:
        """Price a submission's system on the day it was published, else submitted."""
        book = self._book if submission.system.get("cloud") is not None else NO_PRICES
        day = submission.published_on or submission.submitted_at.date()
        return price_of_system(submission.system, book, on=day)

    def of_class(self, row: Row[Any]) -> SystemPrice:
        """Price the hardware class that measured a row, on the day it was measured."""
        day = (row.measured_at or row.submitted_at).date()
        return price_of_class(row.hardware_class, row.system, self._book, on=day)


@router.read("/prices", to_all=True)
def list_prices(session: Session, query: Asked) -> PriceList:
    """List instance prices with their dates and sources. With `on`, prices in force that day."""
    names = (PriceRow.provider, PriceRow.instance, PriceRow.region, PriceRow.pricing)
    wanted = query.model_dump(exclude_none=True, exclude={"on"})
    rows = session.scalars(
        select(PriceRow)
        .filter_by(**wanted)
        .order_by(*names, PriceRow.effective_on.desc(), PriceRow.id.desc())
    )
    holding = read_book(session).holding(query.on) if query.on is not None else None
    replacing = select(PriceRow.supersedes, PriceRow.id).where(PriceRow.supersedes.is_not(None))
    superseded_by = dict(session.execute(replacing).all())
    found = [
        price_view(row, superseded_by.get(row.id))
        for row in rows
        if holding is None or row.id in holding
    ]
    return PriceList(prices=found)


def price_view(row: PriceRow, superseded_by: int | None = None) -> PriceView:
    """Make the view of a stored price."""
    return PriceView.of(
        row,
        superseded_by=superseded_by,
        ranks=row.pricing != "spot" and superseded_by is None,
        added_by=row.adder.name,
    )


def _insert(session: Session, caller: Caller, wanted: PriceCreate) -> PriceRow:
    if wanted.supersedes is not None:
        find_row(session, PriceRow, wanted.supersedes)
        replaced = select(PriceRow.id).where(PriceRow.supersedes == wanted.supersedes)
        successor = session.scalar(replaced)
        if successor is not None:
            raise ConflictError(
                f"Price {wanted.supersedes} is superseded by number {successor} already; "
                "supersede that one."
            )
    row = PriceRow(**wanted.model_dump(), added_by=caller.user_id, added_at=utc_now())
    session.add(row)
    session.flush()
    session.refresh(row)
    return row


def _the_same(session: Session, wanted: PriceCreate) -> int | None:
    columns = (getattr(PriceRow, name) == value for name, value in wanted.model_dump().items())
    return session.scalar(select(PriceRow.id).where(*columns).limit(1))


@router.read("/prices.csv", to_all=True, response_class=Response, responses=CSV_ANSWER)
def get_prices_csv(session: Session, query: Asked) -> Response:
    """List prices as CSV, as `/prices` does."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(PriceView.model_fields), lineterminator="\n")
    writer.writeheader()
    for view in list_prices(session, query).prices:
        row = view.model_dump(mode="json")
        writer.writerow({name: csv_cell(cell) for name, cell in row.items()})
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8")


@router.command("/prices", Form(CONSOLE, "Price {0.id} added."), role="organiser", status=201)
def add_price(session: Session, caller: Caller, body: PriceCreate) -> PriceView:
    """Add a price. To correct a wrong one, add another to supersede it."""
    known = _the_same(session, body)
    if known is not None:
        raise ConflictError(f"This price is already in the price book, as number {known}.")
    row = _insert(session, caller, body)
    raise_all_board_versions(session)
    record_new(session, caller, "price.add", row, reason=body.note)
    return price_view(row)


@router.command("/prices/import", role="organiser")
def import_prices(session: Session, caller: Caller, body: PricesImport) -> PricesImported:
    """Add many prices or none. Known prices are left out."""
    # One after the other: of two equal entries the second is in the book already.
    added = [_insert(session, caller, p) for p in body.prices if _the_same(session, p) is None]
    if added:
        raise_all_board_versions(session)
        subject = Subject("price", f"{added[0].id}-{added[-1].id}")
        after = {"prices": {str(row.id): set_columns(row) for row in added}}
        record(session, caller, "price.import", subject, after=after)
    views = [price_view(row) for row in added]
    return PricesImported(added=views, already_there=len(body.prices) - len(added))

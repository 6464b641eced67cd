"""What the systems of submissions cost: computed whenever it is read, from the book as it is."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Row, func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.prices import PriceBook, SystemPrice, price_of_system
from server.models import PriceRow, Submission
from server.prices.schemas import entry_of

NO_PRICES = PriceBook(())


@dataclass(frozen=True)
class _KeptBook:
    """The book as it was when `last` was its latest entry: entries are only ever added."""

    last: int
    book: PriceBook


_books: WeakKeyDictionary[Engine, _KeptBook] = WeakKeyDictionary()
_keeping = threading.Lock()


def read_book(session: Session) -> PriceBook:
    """The price book as it is, read again only if it has a later entry than it had."""
    engine = cast(Engine, session.get_bind())
    last = session.scalar(select(func.max(PriceRow.id))) or 0
    with _keeping:
        kept = _books.get(engine)
    if kept is not None and kept.last == last:
        return kept.book
    entries = [entry_of(row) for row in session.scalars(select(PriceRow))]
    book = PriceBook(entries)
    # What a writing session sees may be rolled back, and its number given to another entry.
    if not session.connection().get_execution_options().get("finishline_write", False):
        with _keeping:
            _books[engine] = _KeptBook(max((e.number for e in entries), default=0), book)
    return book


class BookCosts:
    """What the book says of many submissions; it is read once, and only if a system asks for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._book: PriceBook | None = None

    def price(self, submission: Submission | Row[Any]) -> SystemPrice:
        """What an hour of a submission's system costs on the day it was submitted."""
        return self.price_on(submission.system, day_of(submission))

    def price_on(self, system: Mapping[str, Any], day: date) -> SystemPrice:
        """What an hour of a system costs on a day."""
        if system.get("cloud") is None:
            return price_of_system(system, NO_PRICES, on=day)
        return price_of_system(system, self._read(), on=day)

    def _read(self) -> PriceBook:
        if self._book is None:
            self._book = read_book(self._session)
        return self._book


def price_of_submission(session: Session, submission: Submission) -> SystemPrice:
    """What an hour of a submission's system costs on the day it was submitted."""
    return BookCosts(session).price(submission)


def day_of(submission: Submission | Row[Any]) -> date:
    """The day on which a result was published, else the one on which it was sent, in UTC."""
    return submission.published_on or submission.submitted_at.date()

"""The price book from the console: add to it, or correct an entry by another."""

from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.benchmarks import prices
from server.pages.declared import Context, page

Number = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@page(prices.CONSOLE, "prices.html", role="organiser")
def prices_page(session: Session, supersedes: Number = None) -> Context:
    """The book and the form; with `supersedes` the form holds the entry to correct."""
    typed = {"effective_on": utc_now().date().isoformat()}
    if supersedes is not None:
        entry = prices.price_view(prices.find_price(session, supersedes)).model_dump()
        # As text, or a count of 0 would read as a field that is left empty.
        fields = prices.PriceCreate.model_fields
        typed = {name: str(entry[name]) for name in fields if entry[name] is not None}
        typed["supersedes"] = str(supersedes)
    return {"typed": typed, "prices": prices.list_prices(session, prices.PriceQuery()).prices}

"""The price book from the console: add to it, or correct an entry by another."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.prices import Price
from server.base.database import utc_now
from server.benchmarks.prices import (
    PriceCreate,
    PriceQuery,
    find_price,
    find_prices,
    store_price,
)
from server.pages.console_page import Console, Done, OrganiserDep
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/prices"
NumberDep = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get(ADDRESS)
def prices_page(console: OrganiserDep, supersedes: NumberDep = None) -> HTMLResponse:
    """The book and the form; with `supersedes` the form holds the entry to correct."""
    typed: dict[str, Any] = {"effective_on": utc_now().date().isoformat()}
    if supersedes is not None:
        with console.services.database.read() as session:
            entry = Price.model_validate(find_price(session, supersedes), from_attributes=True)
        # As text, or a count of 0 would read as a field that is left empty.
        typed = {name: str(value) for name, value in vars(entry).items() if value is not None}
        typed["supersedes"] = str(supersedes)
    return _page(console, typed)


@router.post(ADDRESS)
def add(console: OrganiserDep, form: FormDep) -> Response:
    """Add a price."""

    def add_one(session: Session, wanted: PriceCreate) -> Done:
        number = store_price(session, console.caller, wanted).id
        return ADDRESS, Notice(f"Price {number} added.")

    return console.submit(PriceCreate, filled(form), add_one, partial(_page, console, form))


def _page(console: Console, typed: dict[str, Any], **wrong: Any) -> HTMLResponse:
    with console.services.database.read() as session:
        prices = find_prices(session, PriceQuery())
    return console.page("prices.html", typed=typed, prices=prices, **wrong)

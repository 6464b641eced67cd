"""The price book from the console: add to it, or correct an entry by another."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from server.base.database import utc_now
from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.benchmarks.price_schemas import PriceCreate, PriceQuery, price_of
from server.benchmarks.prices import add_price, find_price, list_prices
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, FormDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/prices"
NumberDep = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get(ADDRESS)
def prices_page(
    services: ServicesDep, signed_in: ConsoleDep, supersedes: NumberDep = None
) -> HTMLResponse:
    """The book and the form; with `supersedes` the form holds the entry to correct."""
    typed: dict[str, Any] = {"effective_on": utc_now().date().isoformat()}
    if supersedes is not None:
        with services.database.read() as session:
            entry = price_of(find_price(session, supersedes))
        # As text, or a count of 0 would read as a field that is left empty.
        typed = {name: str(value) for name, value in vars(entry).items() if value is not None}
        typed["supersedes"] = str(supersedes)
    return _page(services, signed_in, typed)


@router.post(ADDRESS)
def add(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Add a price."""
    wanted, errors = read_form(PriceCreate, filled(form))
    if wanted is None:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            number = add_price(session, signed_in.caller, wanted).id
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(f"Price {number} is in the book."))


def _page(
    services: Services, signed_in: SignedIn, typed: dict[str, Any], **wrong: Any
) -> HTMLResponse:
    with services.database.read() as session:
        prices = list_prices(session, PriceQuery())
    shown = [price.model_dump(mode="json") for price in prices]
    return console_page(services, signed_in, "prices.html", typed=typed, prices=shown, **wrong)

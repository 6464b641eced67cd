"""The price book as a page."""

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from server.benchmarks.price_schemas import PriceQuery
from server.benchmarks.prices import list_prices
from server.pages.forms import read_query
from server.people.dependencies import PartsDep
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/prices", response_class=HTMLResponse)
def prices_page(request: Request, parts: PartsDep) -> str:
    """What instances cost, since when, and who says so."""
    query = read_query(PriceQuery, request)
    filters = query.model_dump(mode="json", exclude_none=True)
    with parts.database.read() as session:
        prices = list_prices(session, query)
    return render(
        "prices.html",
        prices=[price.model_dump(mode="json") for price in prices],
        filters=filters,
        query=f"?{urlencode(filters)}" if filters else "",
    )

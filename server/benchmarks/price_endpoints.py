"""Endpoints of the price book: read by everybody, added to by organisers."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from server.base.services import ServicesDep
from server.benchmarks import prices
from server.benchmarks.views import (
    PriceCreate,
    PriceList,
    PriceQuery,
    PricesImport,
    PricesImported,
    PriceView,
    price_view,
)
from server.people.dependencies import OrganiserDep

router = APIRouter(tags=["prices"])
PriceQueryDep = Annotated[PriceQuery, Query()]
CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}}, "description": "The same entries as CSV."}
}


@router.get("/prices.csv", response_class=Response, responses=CSV_ANSWER)
def get_prices_csv(query: PriceQueryDep, services: ServicesDep) -> Response:
    """List prices as CSV, as `/prices` does."""
    with services.database.read() as session:
        text = prices.prices_csv(prices.list_prices(session, query))
    return Response(text, media_type="text/csv; charset=utf-8")


@router.get("/prices")
def list_prices(query: PriceQueryDep, services: ServicesDep) -> PriceList:
    """List instance prices with their dates and sources; with `on`, those in force that day."""
    with services.database.read() as session:
        return PriceList(prices=prices.list_prices(session, query))


@router.post("/prices", status_code=201)
def add_price(body: PriceCreate, services: ServicesDep, caller: OrganiserDep) -> PriceView:
    """Add a price. A wrong one is corrected by another that supersedes it."""
    with services.database.write() as session:
        row = prices.add_price(session, caller, body)
        session.refresh(row)
        return price_view(row, None)


@router.post("/prices/import")
def import_prices(
    body: PricesImport, services: ServicesDep, caller: OrganiserDep
) -> PricesImported:
    """Add many prices or none; prices that are in the book already are left out."""
    with services.database.write() as session:
        rows, already_there = prices.import_prices(session, caller, body.prices)
        for row in rows:
            session.refresh(row)
        return PricesImported(
            added=[price_view(row, None) for row in rows], already_there=already_there
        )

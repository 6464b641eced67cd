"""The price book."""

from datetime import date, datetime

from finishline.client.views.view import View


class Price(View):
    """An entry of the price book."""

    id: int
    provider: str
    instance: str
    region: str
    pricing: str
    usd_per_hour: float
    effective_on: date
    source_url: str
    note: str | None
    supersedes: int | None
    superseded_by: int | None
    ranks: bool
    added_by: str
    added_at: datetime


class PriceList(View):
    """Entries of the price book."""

    prices: tuple[Price, ...]

"""The price book."""

from datetime import date, datetime

from finishline.api.schema import Schema
from finishline.rules.benchmarks.accelerators import Pricing


class PriceView(Schema):
    """An entry of the book. `superseded_by` names the entry that replaces it.

    `ranks` is whether a cost may rest on it: it is no spot price and nothing supersedes it.
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

"""The price book."""

from datetime import date, datetime
from typing import Annotated

from pydantic import Field

from finishline.api.schema import NO_FLAG, Body, DayField, Schema, example
from finishline.rules.benchmarks.accelerators import Pricing
from finishline.rules.benchmarks.prices import Price

LARGEST_IMPORT = 1000


class PriceCreate(Price):
    """A price, the day it takes effect, and the page it is from.

    With `supersedes` it replaces an earlier entry that was wrong. `hardware_class` is the class
    that the instance belongs to. Without one its known accelerators must be the class's to rank.
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


class PricesImport(Body):
    """Prices to add together or not at all. Those in the book already are left out."""

    prices: list[PriceCreate] = Field(min_length=1, max_length=LARGEST_IMPORT)


class PriceQuery(Body):
    """Filter of the price book: by exact names, and with `on` only prices in force that day."""

    provider: str | None = Field(default=None, max_length=100)
    instance: str | None = Field(default=None, max_length=200)
    region: str | None = Field(default=None, max_length=100)
    pricing: Pricing | None = None
    on: DayField = None


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


class PricesImported(Schema):
    """Prices added, and the number that were in the book already."""

    added: list[PriceView]
    already_there: int

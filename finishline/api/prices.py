"""The price book."""

from datetime import date, datetime
from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator

from finishline.api.dates import Day, DayField
from finishline.api.schema import NO_FLAG, Schema
from finishline.rules.benchmarks.prices import (
    AN_ADDRESS,
    CLASS_NAME,
    HIGHEST_USD_PER_HOUR,
    NAME_LENGTHS,
    NOTE_LENGTH,
    SOURCE_LENGTH,
    Pricing,
    is_web_address,
)

LARGEST_IMPORT = 1000
ONE_LINE = r"^\S(.*\S)?$"


# JSON Schema of `_can_be_followed`: written in ASCII, with a host.
WebAddress = Annotated[
    str,
    Field(min_length=1, max_length=SOURCE_LENGTH),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": SOURCE_LENGTH,
            "pattern": r'^[Hh][Tt][Tt][Pp][Ss]?://[!-"$-.0->@-~][!-~]*$',
        }
    ),
]


class PriceCreate(Schema):
    """A price, the day it takes effect, and the page it is from.

    With `supersedes` it replaces an earlier entry that was wrong. `hardware_class` is the class
    that the instance belongs to. Without one its known accelerators must be the class's to rank.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "provider": "example-cloud",
                    "instance": "gpu.8xlarge",
                    "region": "eu-north",
                    "pricing": "on_demand",
                    "usd_per_hour": 31.22,
                    "effective_on": "2026-11-01",
                    "source_url": "https://cloud.example/prices",
                }
            ]
        },
    )

    provider: str = Field(max_length=NAME_LENGTHS["provider"], pattern=ONE_LINE)
    instance: str = Field(max_length=NAME_LENGTHS["instance"], pattern=ONE_LINE)
    region: str = Field(max_length=NAME_LENGTHS["region"], pattern=ONE_LINE)
    pricing: Pricing = "on_demand"
    usd_per_hour: float = Field(gt=0, le=HIGHEST_USD_PER_HOUR, allow_inf_nan=False)
    effective_on: Day
    source_url: WebAddress
    note: str | None = Field(default=None, min_length=1, max_length=NOTE_LENGTH)
    supersedes: Annotated[int, Field(ge=1, le=2**31 - 1), NO_FLAG] | None = None
    hardware_class: str | None = Field(default=None, pattern=f"^{CLASS_NAME}$")

    @field_validator("provider", "instance", "region", "note")
    @classmethod
    def _without_control_characters(cls, text: str | None) -> str | None:
        if text is not None and any(ord(letter) < 32 and letter != "\n" for letter in text):
            raise ValueError("expected printable text")
        return text

    @field_validator("source_url")
    @classmethod
    def _can_be_followed(cls, text: str) -> str:
        if not (text.isascii() and is_web_address(text)):
            raise ValueError(f"expected {AN_ADDRESS}")
        return text


class PricesImport(Schema):
    """Prices to add together or not at all; those in the book already are left out."""

    model_config = ConfigDict(extra="forbid")

    prices: list[PriceCreate] = Field(min_length=1, max_length=LARGEST_IMPORT)


class PriceQuery(Schema):
    """Filter of the price book: by exact names, and with `on` only prices in force that day."""

    model_config = ConfigDict(extra="forbid")

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

"""The price book."""

from datetime import date, datetime
from math import isclose
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from finishline.api.dates import Day, DayField
from finishline.api.schema import NO_FLAG, Schema
from finishline.rules.benchmarks.prices import (
    AN_ADDRESS,
    HIGHEST_USD_PER_HOUR,
    LEAST_UTILISATION,
    LEAST_YEARS,
    NAME_LENGTHS,
    NOTE_LENGTH,
    SOURCE_LENGTH,
    Ownership,
    Pricing,
    is_web_address,
    owned_usd_per_hour,
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


class OwnedSystem(Schema):
    """Purchase of an owned system, how long and how much it works, its power and what that costs.

    `utilisation` is the fraction of its hours in which it works; `pue` the power of the building
    by that of the system.
    """

    model_config = ConfigDict(extra="forbid", from_attributes=True)

    purchase_usd: float = Field(gt=0, le=1e10, allow_inf_nan=False)
    years: float = Field(ge=LEAST_YEARS, le=100, allow_inf_nan=False)
    utilisation: float = Field(ge=LEAST_UTILISATION, le=1)
    watts: float = Field(gt=0, le=1e8, allow_inf_nan=False)
    pue: float = Field(ge=1, le=10)
    usd_per_kwh: float = Field(gt=0, le=1000)
    grams_co2e_per_kwh: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class PriceCreate(Schema):
    """A price, the day it takes effect, and the page it is from.

    With `supersedes` it replaces an earlier entry that was wrong. The hour of an `owned` system is
    derived from its `ownership`, and need not be stated.
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
    usd_per_hour: float | None = Field(
        default=None, gt=0, le=HIGHEST_USD_PER_HOUR, allow_inf_nan=False
    )
    effective_on: Day
    source_url: WebAddress
    note: str | None = Field(default=None, min_length=1, max_length=NOTE_LENGTH)
    supersedes: Annotated[int, Field(ge=1, le=2**31 - 1), NO_FLAG] | None = None
    ownership: OwnedSystem | None = None

    @model_validator(mode="after")
    def _has_a_price(self) -> Self:
        if (self.pricing == "owned") != (self.ownership is not None):
            raise ValueError("expected ownership with the pricing owned, and only with it")
        derived = self._derived()
        if derived is not None and derived > HIGHEST_USD_PER_HOUR:
            most = f"at most {HIGHEST_USD_PER_HOUR:,.0f}"
            raise ValueError(f"ownership: {derived:g} US dollars an hour; expected {most}")
        if derived is None and self.usd_per_hour is None:
            raise ValueError("usd_per_hour: expected a price above 0")
        if derived and self.usd_per_hour is not None and not isclose(self.usd_per_hour, derived):
            raise ValueError(f"usd_per_hour: expected {derived:.6g}, from its parts, or none")
        return self

    def _derived(self) -> float | None:
        if self.ownership is None:
            return None
        return owned_usd_per_hour(Ownership(**self.ownership.model_dump()))

    def columns(self) -> dict[str, Any]:
        """The fields of an entry, with the derived hour of an owned system."""
        return self.model_dump() | {"usd_per_hour": self._derived() or self.usd_per_hour}

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
    superseded_by: int | None
    ownership: OwnedSystem | None
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

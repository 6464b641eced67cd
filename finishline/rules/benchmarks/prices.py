"""The price of an instance by provider, region and day, and the cost of a time."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from finishline.rules.benchmarks.accelerators import A_CLASS, CLASS_NAME, NAME_LENGTHS, Pricing
from finishline.rules.table import Printable, like, read_day

HIGHEST_USD_PER_HOUR = 1e7
SOURCE_LENGTH = 2000
NOTE_LENGTH = 2000
WEB_ADDRESS = r'[Hh][Tt][Tt][Pp][Ss]?://[!-"$-.0->@-~][!-~]*'  # In ASCII, with a host.


Line = Annotated[str, like(r"\S(.*\S)?", "one line without spaces around it")]
WebAddress = Annotated[str, like(WEB_ADDRESS, "an http or https address")]
ClassName = Annotated[str, like(CLASS_NAME, A_CLASS)]


class Price(BaseModel):
    """Price of one instance from a day on, and the page that states it.

    It may correct another: `supersedes`. `hardware_class` is None if its accelerators tell it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    provider: Line = Field(max_length=NAME_LENGTHS["provider"])
    instance: Line = Field(max_length=NAME_LENGTHS["instance"])
    region: Line = Field(max_length=NAME_LENGTHS["region"])
    pricing: Pricing = "on_demand"
    usd_per_hour: float = Field(gt=0, le=HIGHEST_USD_PER_HOUR)
    effective_on: Annotated[date, BeforeValidator(read_day)]
    source_url: WebAddress = Field(max_length=SOURCE_LENGTH)
    note: Printable | None = Field(None, min_length=1, max_length=NOTE_LENGTH)
    supersedes: int | None = Field(None, ge=1, le=2**31 - 1)
    hardware_class: ClassName | None = None


def stated_price_usd_per_hour(system: Mapping[str, Any]) -> float | None:
    """Return the price a system states, if it may rank: spot prices never may."""
    if system.get("pricing", "on_demand") == "spot":
        return None
    price: float | None = system["price_usd_per_hour"]
    return price


def training_cost_usd(tta_seconds: float | None, price_usd_per_hour: float | None) -> float | None:
    """Return US dollars to the target. Without a time or a price it is None, and unranked by cost.

    Source: dawn-bench-entries README, "costPerHour".
    """
    if tta_seconds is None or price_usd_per_hour is None:
        return None
    return tta_seconds / 3600.0 * price_usd_per_hour


def inference_cost_usd_per_10000(cost_usd_per_item: float | None) -> float | None:
    """Return US dollars for 10,000 items, the unit of the published board."""
    return None if cost_usd_per_item is None else cost_usd_per_item * 10_000

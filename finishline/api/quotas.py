"""Quotas of submissions and replays, and their use."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from finishline.api.schema import Schema

Measure = Literal["submissions_per_day", "gpu_seconds_per_month"]


def _no_text(value: Any) -> Any:
    """Reject texts and booleans, which could be read as numbers."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number, unlimited or default")
    return value


# Limit of a stored integer; a day has fewer submissions, a month fewer seconds.
Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_no_text)]
Amount = Count | Literal["unlimited", "default"]
ABSENT: Any = None  # A field may be left out, while null is refused.


class UseView(Schema):
    """Use of one quota. `allowed` is null for no limit.

    Submissions count for 24 hours, accelerator seconds for 30 days. `reserved`, part of `used`, is
    the estimate for verifications under way. `room_at` is when there is room again.
    """

    measure: Measure
    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


class QuotaView(Schema):
    """Quotas and use of a user."""

    user: str
    quotas: list[UseView]


class QuotaSet(Schema):
    """Quotas to set; an absent one stays as it is. "default" is the value of the settings."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "minProperties": 2,  # A quota and the reason.
            "examples": [{"submissions_per_day": 5, "gpu_seconds_per_month": "unlimited",
                          "reason": "a course of 30"}]
        },
    )  # fmt: skip

    submissions_per_day: Amount = Field(default=ABSENT)
    gpu_seconds_per_month: Amount = Field(default=ABSENT)
    reason: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class Override(Schema):
    """Quotas that an organiser set for a user, by measure; null is no limit."""

    user: str
    quotas: dict[Measure, int | None]


class QuotaList(Schema):
    """Default quotas of each user, and every override."""

    defaults: dict[Measure, int | None]
    overrides: list[Override]

"""Quotas of submissions and replays, and their use."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from finishline.api.schema import Schema

Measure = Literal["submissions_per_day", "gpu_seconds_per_month"]


SubjectKind = Literal["user", "organisation", "benchmark"]


def _no_text(value: Any) -> Any:
    """Reject texts and booleans, which could be read as numbers."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number")
    return value


# Limit of a stored integer; a day has fewer submissions, a month fewer seconds.
Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_no_text)]
Amount = Count | Literal["unlimited", "default"]


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
    """Quotas and use of a user, or of all submitters of a benchmark; for an organisation the
    quotas of each member, with nothing used."""

    subject_kind: SubjectKind
    subject: str
    quotas: list[UseView]


class MyQuotaView(QuotaView):
    """Your own quotas, and those of benchmarks that have any."""

    benchmarks: list[QuotaView]


class QuotaSet(Schema):
    """Quotas to set; an absent one stays as it is. "default" is the value of the settings."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"submissions_per_day": 5, "gpu_seconds_per_month": "unlimited",
                          "reason": "a course of 30"}]
        },
    )  # fmt: skip

    submissions_per_day: Amount | None = None
    gpu_seconds_per_month: Amount | None = None
    reason: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class SetQuotaView(Schema):
    """A quota that an organiser set; `amount` null is no limit."""

    subject_kind: SubjectKind
    subject: str
    measure: Measure
    amount: int | None
    reason: str
    set_at: datetime


class QuotaList(Schema):
    """Default quotas of each user, and every quota that an organiser set."""

    defaults: dict[Measure, int | None]
    quotas: list[SetQuotaView]

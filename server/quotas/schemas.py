"""Quotas as they cross the API."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from server.quotas.usage import Measure

SubjectKind = Literal["user", "organisation", "benchmark"]


def _no_text(value: Any) -> Any:
    """A text or a yes counts nothing, though it could be read as a number."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number")
    return value


# Up to what a database's integer holds; a day has fewer submissions, a month fewer seconds.
Count = Annotated[int, BeforeValidator(_no_text), Field(ge=0, le=10**12)]
Amount = Count | Literal["unlimited", "default"]


class UseView(BaseModel):
    """What is used of one quota. `allowed` is null where there is no limit.

    Submissions count for 24 hours, accelerator seconds for 30 days. `reserved`, part of `used`, is
    what verifications under way will probably take. `room_at` is when there is room again.
    """

    measure: Measure
    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


class QuotaView(BaseModel):
    """What a user may use, or all submitters of a benchmark together; for an organisation what
    each member may, with nothing used."""

    subject_kind: SubjectKind
    subject: str
    quotas: list[UseView]


class MyQuotaView(QuotaView):
    """Your own quotas, and those of benchmarks that have any."""

    benchmarks: list[QuotaView]


class QuotaSet(BaseModel):
    """What is to hold; what is absent stays as it is. "default" is what the settings say."""

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


class SetQuotaView(BaseModel):
    """One quota that an organiser set; `amount` null is no limit."""

    subject_kind: SubjectKind
    subject: str
    measure: Measure
    amount: int | None
    reason: str
    set_at: datetime


class QuotaList(BaseModel):
    """What the settings allow each user, and everything that is set otherwise."""

    defaults: dict[Measure, int | None]
    quotas: list[SetQuotaView]

"""Request and response models of pools: the sealed runs of a configuration."""

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from finishline.api.schema import Schema

PoolState = Literal["collecting", "measured", "missed"]


class PoolClose(Schema):
    """Reason to measure a configuration again."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=2000)


class PoolRunView(Schema):
    """A sealed run; `seconds` is null of one that missed the target, which counts as infinite."""

    verification_id: str
    run: int
    seed: int
    seconds: float | None
    epochs: float | None


class PoolView(Schema):
    """The sealed runs of one configuration, and the time they measure."""

    id: str
    benchmark: str
    benchmark_sha256: str
    division: str
    hardware_class: str
    settings: dict[str, float]
    state: PoolState
    measured_seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    opened_at: datetime
    measured_at: datetime | None
    closed_at: datetime | None
    closed_because: str | None
    submissions: list[str]
    runs: list[PoolRunView]

"""Phases of a benchmark: dates to set, and the phase they make."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from finishline.api.schema import Schema
from finishline.rules.benchmarks.phases import (
    PhaseName,
    Phases,
    faults,
)

FIRST_YEAR, LAST_YEAR = 2000, 8999
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _read_moment(value: Any) -> datetime:
    """Parse a text with a time zone to a moment in UTC, in whole seconds. Rejects numbers."""
    text = value if isinstance(value, str) else ""
    try:
        if MOMENT.fullmatch(text) is None:
            raise ValueError(text)
        # Looked at first: the first and the last days of all cannot be moved to another time zone.
        if not FIRST_YEAR <= int(text[:4]) <= LAST_YEAR:
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise PydanticCustomError(
            "no_moment",
            "no moment; expected one with its time zone, like 2026-11-21T18:00:00Z, of the years "
            "2000 to 8999",
        ) from None
    return moment.astimezone(UTC).replace(microsecond=0)


Moment = Annotated[
    datetime,
    BeforeValidator(_read_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class PhasesCreate(Schema):
    """All dates of a benchmark, and the reason; an omitted date is removed.

    `unfreeze` allows a change of `freezes_at` after it has passed, so that nobody does it by
    leaving the date out.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "opens_at": "2026-12-01T00:00:00Z",
                    "freezes_at": "2026-12-01T00:00:00Z",
                    "closes_at": "2027-01-15T00:00:00Z",
                    "embargo_until": "2027-02-01T00:00:00Z",
                    "reason": "the winter round",
                }
            ]
        },
    )

    opens_at: Moment | None = None
    freezes_at: Moment | None = None
    closes_at: Moment | None = None
    embargo_until: Moment | None = None
    reason: str = Field(min_length=1, max_length=2000)
    unfreeze: StrictBool = False

    @field_validator("reason")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise PydanticCustomError("no_reason", "expected a sentence")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        found = faults(self.phases)
        if found:
            raise PydanticCustomError("dates_out_of_order", "{text}", {"text": " ".join(found)})
        return self

    @property
    def phases(self) -> Phases:
        """The dates."""
        return Phases(self.opens_at, self.freezes_at, self.closes_at, self.embargo_until)


class PhasesView(Schema):
    """Phase of a benchmark, as a `sentence` too, and its dates in UTC; None is no date.

    `phase` is announced, open, frozen (open, and the rules are frozen) or closed. `frozen_sha256`
    names the definition that submissions are scored under since `freezes_at`.
    """

    phase: PhaseName
    sentence: str
    takes_submissions: bool
    rules_frozen: bool
    under_embargo: bool
    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None


class PhasesSet(Schema):
    """A change of the dates: by whom, when and why."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None
    reason: str
    set_by: str
    set_at: datetime


class PhasesHistory(Schema):
    """Current phases, and every change, the latest first."""

    benchmark: str
    phases: PhasesView
    history: list[PhasesSet]

"""Request and response models of phases."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from finishline.rules.benchmarks.phases import (
    NO_PHASES,
    PhaseName,
    Phases,
    faults,
    is_embargoed,
    is_frozen,
    phase_at,
    sentence_at,
)
from server.base.models import BenchmarkPhases
from server.benchmarks.phase_queries import Dates

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


class PhasesCreate(BaseModel):
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
            text = " ".join(f"{name}: {sentence}" for name, sentence in found.items())
            raise PydanticCustomError("dates_out_of_order", "{text}", {"text": text})
        return self

    @property
    def phases(self) -> Phases:
        """The dates."""
        return Phases(self.opens_at, self.freezes_at, self.closes_at, self.embargo_until)


class PhasesView(BaseModel):
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


class PhasesSet(BaseModel):
    """A change of the dates: by whom, when and why."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None
    reason: str
    set_by: str
    set_at: datetime


class PhasesHistory(BaseModel):
    """Current phases, and every change, the latest first."""

    benchmark: str
    phases: PhasesView
    history: list[PhasesSet]


def phases_of(row: BenchmarkPhases | Dates | None) -> Phases:
    """Dates of a stored row; none without one."""
    if row is None:
        return NO_PHASES
    return Phases(row.opens_at, row.freezes_at, row.closes_at, row.embargo_until)


def phases_view(row: BenchmarkPhases | None, now: datetime) -> PhasesView:
    """View of the phase at a moment."""
    phases = phases_of(row)
    name = phase_at(phases, now)
    return PhasesView(
        phase=name,
        sentence=sentence_at(phases, now),
        takes_submissions=name in ("open", "frozen"),
        rules_frozen=is_frozen(phases, now),
        under_embargo=is_embargoed(phases, now),
        frozen_sha256=row.frozen_sha256 if row is not None else None,
        **vars(phases),
    )


def phases_set(row: BenchmarkPhases) -> PhasesSet:
    """View of a row of the history."""
    return PhasesSet(
        frozen_sha256=row.frozen_sha256,
        reason=row.reason,
        set_by=row.setter.name,
        set_at=row.set_at,
        **vars(phases_of(row)),
    )

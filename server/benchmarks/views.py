"""Bodies and views of benchmarks, phases and prices."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, StrictBool, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from finishline.api.benchmarks import BenchmarkView, PhasesView, RunsView
from finishline.api.benchmarks import Dates as DatesView
from finishline.api.schema import Schema
from finishline.rules.benchmarks.accelerators import Pricing
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import Price
from server.base.forms import NO_FLAG, Body, DayField, Sentence, example
from server.base.models import BenchmarkPhases, PriceRow
from server.benchmarks.phase_queries import (
    NO_PHASES,
    Dates,
    Phases,
    faults,
    is_embargoed,
    is_frozen,
    phase_at,
    sentence_at,
)
from server.benchmarks.queries import NO_SUBMISSIONS, Counts

FIRST_YEAR, LAST_YEAR = 2000, 8999
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _read_moment(value: Any) -> datetime:
    """Parse a text with a time zone to a moment in UTC, in whole seconds. Rejects numbers."""
    text = value if isinstance(value, str) else ""
    try:
        # The first and the last days of all cannot be moved to another time zone.
        if not (MOMENT.fullmatch(text) and FIRST_YEAR <= int(text[:4]) <= LAST_YEAR):
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


class PhasesCreate(Body):
    """All dates of a benchmark, and the reason. An omitted date is removed.

    `unfreeze` allows a change of `freezes_at` after it has passed, so that nobody does it by
    leaving the date out.
    """

    model_config = example(
        opens_at="2026-12-01T00:00:00Z",
        freezes_at="2026-12-01T00:00:00Z",
        closes_at="2027-01-15T00:00:00Z",
        embargo_until="2027-02-01T00:00:00Z",
        reason="the winter round",
    )

    opens_at: Moment | None = None
    freezes_at: Moment | None = None
    closes_at: Moment | None = None
    embargo_until: Moment | None = None
    reason: Sentence
    unfreeze: StrictBool = False

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


class PhasesSet(DatesView):
    """A change of the dates: by whom, when and why."""

    reason: str
    set_by: str
    set_at: datetime


class PhasesHistory(Schema):
    """Current phases, and every change, the latest first."""

    benchmark: str
    phases: PhasesView
    history: list[PhasesSet]


LARGEST_IMPORT = 1000


@dataclass(frozen=True)
class PriceEntry:
    """A price in the book; `number` counts entries in the order they were added."""

    number: int
    price: Price


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


class PricesImported(Schema):
    """Prices added, and the number that were in the book already."""

    added: list[PriceView]
    already_there: int


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """View of a benchmark with the number of its submissions."""
    return BenchmarkView.of(
        benchmark,
        id=benchmark.benchmark_id,
        clock=benchmark.clock.name,
        runs=RunsView.of(benchmark.runs, started=benchmark.runs.wanted),
        replayable=benchmark.replay is not None,
        convergence_unit="samples" if benchmark.convergence_unit == "samples_count" else "epochs",
        submissions=counts.train + counts.inference,
        inference_submissions=counts.inference,
        phases=phases,
    )


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
    return PhasesSet.of(row, set_by=row.setter.name, **vars(phases_of(row)))


def entry_of(row: PriceRow) -> PriceEntry:
    """Convert a stored price to an entry with its number."""
    return PriceEntry(row.id, Price.model_validate(row, from_attributes=True))


def price_view(row: PriceRow, superseded_by: int | None) -> PriceView:
    """View of a stored price."""
    return PriceView.of(
        row,
        superseded_by=superseded_by,
        ranks=row.pricing != "spot" and superseded_by is None,
        added_by=row.adder.name,
    )

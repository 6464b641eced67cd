"""Query a board: its rows, their order, another clock or target, and the choices of its filters."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any, Literal, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from finishline.rules.benchmarks.accelerators import NOT_STATED, SIZES, Accelerator
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.ranking import KIND_OF_METRIC, Check, Evidence, Metric, Round
from finishline.rules.run import Clock, ClockName
from finishline.rules.submissions.claim import Kind
from server.base.errors import ConflictError, ContentError
from server.base.forms import Body, DayField
from server.base.standing import Status
from server.boards.rows import PlacedRow

SortColumn = Literal[
    "rank", "model", "submitter", "system", "tta", "cv", "epochs", "cost", "latency",
    "measured_latency", "inference_cost", "quality", "status", "date", "division", "framework",
    "energy", "precision", "samples",
]  # fmt: skip
# Field of an entry that each of these columns sorts by.
SORTED_FIGURES: dict[SortColumn, str] = {
    "cv": "cv_percent",
    "latency": "latency_ms",
    "measured_latency": "measured_latency_ms",
    "inference_cost": "cost_usd_per_10000",
    "quality": "quality",
    "energy": "energy_joules",
    "samples": "samples_per_second",
}
# Fields that filter entries. The others of a query choose the ranking and its order.
FILTERS = (
    "status", "evidence", "check", "framework", "hardware_class", "vendor", "accelerator", "size",
    "date_from", "date_to", "q", "ids", "best",
)  # fmt: skip
Best = Literal["submitter", "system", "accelerator"]
Size = Literal["1", "2-8", "9-64", "65-512", "more"]


class BoardQuery(Body):
    """Query of a board: metric, filters, order and page.

    The metrics `tta`, `cost` and `energy` rank trainings, `latency` and `inference_cost` inference.
    `clock` and `target` rank trainings by the stored curves under another clock or at another
    target. `price`, in US dollars for each accelerator and hour, or the price book of the day
    `prices_on` prices them anew. `date_from` and `date_to`, both included, are days of submission,
    or dates in an archive.

    `accelerator` is a model such as "H100" and `vendor` its maker. "not stated" chooses the others.
    `size` is a range of the number of accelerators. `framework` is a version or a whole family,
    such as "PyTorch". `best` keeps the first row of each submitter, system or accelerator.

    `round` is "archive" for results published elsewhere and "open" for all others. Without a round
    or a division you get the first board with a numbered row. Without a `hardware_class` you get
    the class with the most measured times.

    Pages of `limit` entries are numbered from 1. `cursor` continues an earlier answer instead.
    """

    division: Literal["closed", "open"] | None = None
    round: Round | None = None
    metric: Metric = "tta"
    status: Status | None = None
    evidence: Evidence | None = None
    check: Check | None = None
    q: str | None = Field(default=None, max_length=200)
    sort: SortColumn = "rank"
    order: Literal["asc", "desc"] = "asc"
    limit: int = Field(default=100, ge=1, le=1000)
    cursor: str | None = Field(default=None, max_length=40, pattern=r"^([0-9]+\.[0-9]+)?$")
    clock: ClockName | None = None
    target: float | None = Field(default=None, allow_inf_nan=False)
    price: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    prices_on: DayField = None
    hardware_class: str | None = Field(default=None, max_length=200)
    vendor: str | None = Field(default=None, max_length=60)
    accelerator: str | None = Field(default=None, max_length=60)
    size: Size | None = None
    framework: str | None = Field(default=None, max_length=4000)
    ids: list[str] | None = Field(default=None, max_length=100)
    best: Best | None = None
    date_from: DayField = None
    date_to: DayField = None
    page: int = Field(default=1, ge=1, le=1_000_000)
    withdrawn: Literal["", "show"] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _none_if_empty(cls, value: object, info: ValidationInfo) -> object:
        is_filter = cls.model_fields[str(info.field_name)].default is None
        return None if value == "" and is_filter else value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.cursor is not None and self.page > 1:
            raise PydanticCustomError("two_places", "a cursor and a page; expected one of them")
        if self.price is not None and self.prices_on is not None:
            raise PydanticCustomError(
                "two_prices", "a price and a day of the price book; expected one of them"
            )
        return self

    @property
    def kind(self) -> Kind:
        """The kind of submissions that the metric ranks."""
        return KIND_OF_METRIC[self.metric]

    @property
    def other_price(self) -> float | date | None:
        """US dollars for an accelerator and hour, or the day of the prices. None: as stated."""
        if self.kind != "train":  # An inference has no time to price.
            return None
        return self.prices_on if self.price is None else self.price

    @property
    def is_selective(self) -> bool:
        """Whether it filters a division's entries, or orders them by a column."""
        is_filtered = any(getattr(self, name) is not None for name in FILTERS)
        shows_more = self.withdrawn == "show"
        return is_filtered or shows_more or self.sort != "rank" or self.order != "asc"

    def start(self, version: int) -> int:
        """Return the first place of its page at a board's version, counted from 0."""
        if self.cursor is None:
            return (self.page - 1) * self.limit
        of_version, _, start = self.cursor.partition(".")
        parts = (of_version, start)
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
        if int(of_version) != version:
            raise ConflictError(
                "The board has changed since that page. Start again without a cursor."
            )
        return int(start)


# In these metrics a submission's figure is a multiple of its runs' time.
METRICS_OF_RUNS = ("tta", "cost")


@dataclass(frozen=True)
class WhatIf:
    """The other clock and target of a board."""

    clock: Clock
    target: QualityTarget
    own_target: bool


def make_what_if(
    benchmark: Benchmark, *, clock: ClockName | None, target: float | None
) -> WhatIf | None:
    """Make the view at a clock and a target. None for the benchmark's own. Raises RuleError."""
    own, field = benchmark.target, "query.target"
    value = own.value if target is None else target
    if not own.is_possible(value):
        expected = f"a {own.metric}: {own.possible_in_words}"
        raise RuleError(f"{value:g}", field=field, expected=expected)
    if benchmark.reach.name == "budget":
        message = "every run of this benchmark ends at its budget on the official clock"
        name = "clock" if target is None else "target"
        raise RuleError(message, field=f"query.{name}", expected="no clock or target")
    if not benchmark.reach.is_at_quality and value != own.value:
        message = "every run of this benchmark stops at the same step, whatever its quality"
        raise RuleError(message, field=field, expected="no target")
    named = Clock(clock or benchmark.clock.name)
    if value == own.value and named == benchmark.clock:
        return None
    return WhatIf(named, replace(own, value=value), value == own.value)


def what_if_of(benchmark: Benchmark, query: BoardQuery) -> WhatIf | None:
    """Return the other clock and target of a query. None for the official ranking."""
    if query.clock is None and query.target is None:
        return None
    found = make_what_if(benchmark, clock=query.clock, target=query.target)
    return found if query.metric in METRICS_OF_RUNS else None


FRAMEWORKS = (
    *("PyTorch", "TensorFlow", "JAX", "MXNet", "NeMo", "HugeCTR", "DGL", "PaddlePaddle"),
    *("MindSpore", "Caffe", "BigDL", "TensorRT", "Keras", "tinygrad", "numpy"),
)
_FRAMEWORK = re.compile(
    "|".join(rf"(?P<{name}>{name})" for name in FRAMEWORKS) + "|torch", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def framework_family(text: str) -> str:
    """Return the framework that a text names first: "PyTorch" of "NGC pytorch 1.0"."""
    if (found := _FRAMEWORK.search(text)) is not None:
        return found.lastgroup or "PyTorch"
    word = re.match(r"\W*([^\s,;/+(]+)", text)
    return word[1] if word else text


# The narrowest type first. A measured precision replaces the claimed one.
PRECISIONS = {name: place for place, name in enumerate(reversed(get_args(PrecisionName)))}
STATUSES = ("verified", "verifying", "claimed", "inconclusive", "rejected")
BEST_OF: dict[Best, Callable[[PlacedRow], str]] = {
    "submitter": lambda row: str(row["submitter"]),
    "system": lambda row: str(row["system"]["name"]),
    "accelerator": lambda row: row.row.accelerator.model or NOT_STATED,
}


def select_rows(rows: Sequence[PlacedRow], query: BoardQuery) -> list[PlacedRow]:
    """Filter rows by a query, in its order, absent figures last."""
    chosen = [row for row in rows if _matches(row, query)]
    if query.best is not None:
        firsts: dict[str, PlacedRow] = {}
        for row in chosen:
            firsts.setdefault(BEST_OF[query.best](row), row)
        chosen = list(firsts.values())
    if query.sort == "rank" and query.order == "asc":
        return chosen
    keyed = [(_sort_key(row, query.sort), row) for row in chosen]
    present = [pair for pair in keyed if pair[0] is not None]
    present.sort(key=lambda pair: pair[0], reverse=query.order == "desc")
    return [row for _, row in present] + [row for value, row in keyed if value is None]


def _sort_key(row: PlacedRow, column: SortColumn) -> Any:
    match column:
        case "rank":
            return row["rank"]
        case "model" | "submitter" | "division" | "framework":
            return row[column].casefold()
        case "system":
            return row["system"]["name"].casefold()
        case "tta":
            return row.row.tta_seconds
        case "epochs":
            return row["epochs_to_target"] or (row["rcp"] or {}).get("submission_mean")
        case "cost":
            return row["cost_usd"]
        case "precision":
            return PRECISIONS.get(row["precision_measured"] or row["precision"])
        case "status":
            return STATUSES.index(row["status"])
        case "date":
            return row.row.submitted_at
    return row[SORTED_FIGURES[column]]


def _matches(placed: PlacedRow, query: BoardQuery) -> bool:
    row, accelerator, framework = placed.row, placed.row.accelerator, placed["framework"]
    pairs = (
        (query.status, placed["status"]),
        (query.evidence, placed["evidence"]),
        (query.check, placed["check"]),
        (query.vendor, accelerator.vendor or NOT_STATED),
        (query.accelerator, accelerator.model or NOT_STATED),
        (query.size, accelerator.size),
        (query.hardware_class, placed["system"]["hardware_class"]),
    )
    if any(wanted not in (None, found) for wanted, found in pairs):
        return False
    if query.framework not in (None, framework, framework_family(framework)):
        return False
    if query.ids is not None and placed["submission_id"] not in query.ids:
        return False
    day = row.submitted_at[:10]
    if query.date_from is not None and day < query.date_from.isoformat():
        return False
    if query.date_to is not None and day > query.date_to.isoformat():
        return False
    return query.q is None or query.q.casefold() in row.search_text


# A menu stays short. Values left out can be searched for.
MOST_CHOICES = 60
FIGURES = (
    *("tta_seconds", "epochs_to_target", "cost_usd"),
    *("precision", "precision_measured"),
    *SORTED_FIGURES.values(),
)
Counts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Facets:
    """Values on a whole board, the most frequent first, and the figures that are `present`."""

    divisions: Counts
    evidences: Counts
    accelerators: tuple[tuple[str, Counts], ...]
    sizes: Counts
    frameworks: Counts
    present: frozenset[str]
    qualities: tuple[float, float] | None
    days: tuple[str, str] | None


def find_facets(rows: Sequence[PlacedRow]) -> Facets:
    """Collect the values on a board of these rows."""
    accelerators = [placed.row.accelerator for placed in rows]
    sizes = Counter(one.size for one in accelerators)
    qualities = [row["quality"] for row in rows if row["quality"] is not None]
    days = [placed.row.submitted_at[:10] for placed in rows]
    present = {name for name in FIGURES if any(row[name] is not None for row in rows)}
    if any(row["system"]["availability"] for row in rows):
        present.add("availability")
    return Facets(
        divisions=_counts(row["division"] for row in rows),
        evidences=_counts(row["evidence"] for row in rows),
        accelerators=_by_vendor(accelerators),
        sizes=tuple((name, sizes[name]) for name in SIZES if sizes[name]),
        frameworks=_counts(framework_family(row["framework"]) for row in rows),
        present=frozenset(present),
        qualities=(min(qualities), max(qualities)) if qualities else None,
        days=(min(days), max(days)) if days else None,
    )


def _by_vendor(accelerators: Sequence[Accelerator]) -> tuple[tuple[str, Counts], ...]:
    found = [(one.vendor or NOT_STATED, one.model or NOT_STATED) for one in accelerators]
    vendors = [vendor for vendor, _ in _counts(vendor for vendor, _ in found)]
    vendors.sort(key=lambda vendor: vendor == NOT_STATED)
    return tuple(
        (vendor, _counts(model for maker, model in found if maker == vendor)) for vendor in vendors
    )


def _counts(values: Iterable[str]) -> Counts:
    found = Counter(values)
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_CHOICES])

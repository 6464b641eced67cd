"""Leaderboards: a query, and a page of entries."""

from datetime import date, datetime
from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from finishline.api.schema import Body, DayField, Schema
from finishline.api.submissions import EvidenceFields, RcpView, SystemView, WaiverView
from finishline.rules.ranking import KIND_OF_METRIC, Check, Evidence, Metric, Round
from finishline.rules.run import ClockName
from finishline.rules.submissions.claim import Kind

SortColumn = Literal[
    "rank", "model", "submitter", "system", "tta", "cv", "epochs", "cost", "latency",
    "measured_latency", "inference_cost", "quality", "status", "date", "division", "framework",
    "energy", "precision", "samples",
]  # fmt: skip
# Field of an entry that each of these columns sorts by. The others are no figures of one field.
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

    The metrics `tta`, `cost` and `energy` rank trainings. `latency` and `inference_cost` inference.
    `clock` and `target` rank trainings by the stored curves under another clock or at another
    target. `price`, in US dollars for each accelerator and hour, or the price book of the day
    `prices_on` prices them anew. `date_from` and `date_to`, both included, are of the day a result
    was submitted, or of the date in its archive.

    `accelerator` is a model such as "H100" and `vendor` its maker. "not stated" chooses the others.
    `size` is a range of the number of accelerators. `framework` is a version or a whole family,
    such as "PyTorch". `best` keeps the first row of each submitter, system or accelerator.

    `round` is "archive" for results published elsewhere and "open" for all others. Without it or a
    division the board is the first that has a numbered row.

    Pages of `limit` entries are numbered from 1. `cursor` continues an earlier answer instead.
    """

    division: Literal["closed", "open"] | None = None
    round: Round | None = None
    metric: Metric = "tta"
    status: Literal["claimed", "verifying", "verified", "rejected", "inconclusive"] | None = None
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
        """Read an empty form field as no filter."""
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
    def asks_for_lens(self) -> bool:
        """Whether a clock or a target is named, if only the benchmark's own."""
        return self.clock is not None or self.target is not None

    @property
    def is_selective(self) -> bool:
        """Whether it asks for some of a division's entries alone, or in another order."""
        is_filtered = any(getattr(self, name) is not None for name in FILTERS)
        shows_more = self.withdrawn == "show"
        return is_filtered or shows_more or self.sort != "rank" or self.order != "asc"

    @property
    def is_own(self) -> bool:
        """Whether it asks for another clock, target or prices, or searches for a text."""
        own = (self.price, self.prices_on, self.q)
        return self.asks_for_lens or any(value is not None for value in own)


class BoardEntry(EvidenceFields):
    """One submission on a board. `rank` is None where it is not ranked, with the reason.

    `quality` is the best of a training or that of an inference's model, in the unit of the target.
    Times and runs are of trainings, `latency_ms` and `cost_usd_per_10000` of inference, as claimed.
    `measured_latency_ms` is a worker's median on the same hardware class.

    `precision` is the narrowest floating type touched, as claimed, and `precision_measured` as a
    replay found it. `energy_joules` is the mean energy of a run to the target in the replay
    behind the status, on the same hardware class. `cost_price` is the entry of the price book that
    `cost_usd` rests on, None where the system states its own price. `samples_per_second` is of the
    runs that reached the target. `verification_id` is the verification behind the status, or the
    one under way. `package_bytes` is the size of a code submission under xz.
    """

    rank: int | None
    tied: bool
    unranked_reason: str | None
    submission_id: str
    submitter: str
    display_name: str | None = None
    model: str
    framework: str
    division: str
    status: str
    system: SystemView
    tta_seconds: float | None
    tta_display: str | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    cv_percent: float | None
    runs_reached: int
    runs_started: int
    epochs_to_target: float | None
    cost_usd: float | None
    cost_price: int | None = None
    latency_ms: float | None
    cost_usd_per_10000: float | None = None
    measured_latency_ms: float | None = None
    quality: float | None = None
    evaluation_interval_seconds: float | None
    submitted_at: datetime
    submitted_on: date | None = None
    raw_tta_seconds: float | None = None
    rcp: RcpView | None = None
    precision: str | None = None
    precision_measured: str | None = None
    energy_joules: float | None = None
    energy_kwh: float | None = None
    samples_per_second: float | None = None
    verification_id: str | None = None
    withdrawn: bool = False
    benchmark_sha256: str
    package_bytes: int | None = None
    waivers: list[WaiverView] = []


class LensView(Schema):
    """The clock and target of a board that is not the official ranking, and a sentence on them."""

    clock: str
    target: float
    official_clock: str
    official_target: float
    note: str


class BoardPriceView(Schema):
    """Unofficial prices of a board: one, or the price book of a day, and a sentence on them."""

    usd_per_accelerator_hour: float | None
    prices_on: date | None
    note: str


class BoardView(Schema):
    """A page of a leaderboard. `version` rises with every change of the board.

    Its entries are of one `kind`, "train" or "inference". Of `total` entries that fit the query
    those from place `first` on are here, counted from 1.

    `lens` is None on the official ranking, `price` where costs are as stated. `other_rules` has
    each `benchmark_sha256` whose figures are not comparable with those scored now, and why.
    """

    benchmark: str
    kind: str
    division: str | None
    round: Round | None = None
    metric: str
    version: int
    total: int
    next_cursor: str | None
    entries: list[BoardEntry]
    first: int | None = None
    lens: LensView | None = None
    price: BoardPriceView | None = None
    other_rules: dict[str, str] = Field(default_factory=dict)


class PreviewPart(Schema):
    """Entries of a board under embargo: their ids on this page, and their number before filters."""

    embargo_until: datetime | None
    hidden: list[str]
    hidden_total: int
    note: str


class PreviewView(BoardView):
    """A page of a board as if nothing of it were under embargo."""

    preview: PreviewPart

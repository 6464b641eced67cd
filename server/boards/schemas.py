"""What the boards' endpoints take, and what the live view of a training answers."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from finishline.api.boards import BoardView
from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.ranking import KIND_OF_METRIC, Check, Evidence, Metric, Round
from finishline.rules.run import ClockName
from finishline.rules.submissions.claim import Kind
from server.base.forms import Body, DayField

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
    division the board is the first that has a numbered row. Without a `hardware_class` it is the
    one with the most measured times.

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


class CurvePoint(Schema):
    """A quality, and when it was measured."""

    epoch: float | None
    seconds: float
    quality: float


class GhostPointView(CurvePoint):
    """The mean of `runs` at one evaluation of the ghost.

    `index` counts the replay's evaluations from 1. It is None where the point lies between two.
    """

    index: int | None
    runs: int


class GhostView(Named):
    """A curve to compare a replay with.

    "record" is the median run of the submission that holds the record of the division: of its
    measured runs, if it is measured. It may be the submission itself (`is_own`). "claim" is the
    mean over the submission's own runs.
    """

    role: Literal["record", "claim"]
    is_own: bool
    model: str
    hardware: str
    hardware_class: str
    points: list[GhostPointView]


class EvaluationSoFar(CurvePoint):
    """One evaluation of a replay. `second_half` is the quality that stops no clock, if any."""

    second_half: float | None = None


class RunSoFar(Schema):
    """A run (`index` from 0) of the latest attempt. `status` is None while it goes on."""

    index: int
    status: str | None
    evaluations: list[EvaluationSoFar]


class RaceView(Schema):
    """A replay with its ghosts. `attempt` is the number of the attempt its runs are of.

    `why_no_record` says why there is no ghost of a record. Only replays have ghosts.
    """

    verification_id: str
    attempt: int | None
    runs: list[RunSoFar]
    ghosts: list[GhostView]
    why_no_record: str | None


class PreviewPart(Schema):
    """Entries of a board under embargo: their ids on this page, and their number before filters."""

    embargo_until: datetime | None
    hidden: list[str]
    hidden_total: int
    note: str


class PreviewView(BoardView):
    """A page of a board as if nothing of it were under embargo."""

    preview: PreviewPart

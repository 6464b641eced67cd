"""Leaderboards, and comparisons of submissions."""

from datetime import date, datetime

from pydantic import Field

from finishline.api.evidence import EvidenceFields
from finishline.api.submissions import RcpView, SystemView
from finishline.client.views.view import View


class Lens(View):
    """Clock and target of a board that is not the official ranking."""

    clock: str
    target: float
    official_clock: str
    official_target: float
    note: str


class BoardPrice(View):
    """The price that costs on a board are at, where they are not the official ones."""

    usd_per_accelerator_hour: float | None
    prices_on: date | None
    note: str


class BoardEntry(EvidenceFields):
    """One submission on a board. `rank` is None where it is not ranked, with the reason."""

    rank: int | None
    tied: bool
    unranked_reason: str | None
    submission_id: str
    submitter: str
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
    samples_per_second: float | None = None
    verification_id: str | None = None
    withdrawn: bool = False
    benchmark_sha256: str | None = None


class BoardPreview(View):
    """Entries of a board under embargo, and the end of the embargo.

    `hidden` are the ids of its entries that are under embargo; `hidden_total` counts those of the
    whole board, before filters.
    """

    embargo_until: datetime | None
    hidden: tuple[str, ...]
    hidden_total: int
    note: str


class Board(View):
    """A page of a leaderboard; iterate over its `entries`.

    `other_rules` lists the differences of each `benchmark_sha256` that is not comparable with the
    rules in force.
    """

    benchmark: str
    kind: str
    division: str | None
    metric: str
    version: int
    total: int
    next_cursor: str | None
    entries: tuple[BoardEntry, ...]
    first: int | None = None
    lens: Lens | None = None
    price: BoardPrice | None = None
    other_rules: dict[str, str] = Field(default_factory=dict)


class PreviewedBoard(Board):
    """A page of a leaderboard as if nothing of it were under embargo."""

    preview: BoardPreview


class Compared(View):
    """A submission that is compared; `run_seconds` of the runs that reached the target."""

    submission_id: str
    submitter: str
    model: str
    division: str
    tta_seconds: float | None
    runs_started: int
    run_seconds: tuple[float, ...]
    single_run: bool
    withdrawn: bool = False


class ComparedPair(View):
    """The first submission against the second; `ratio` below 1 where the first is faster."""

    first: str
    second: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    p_adjusted: float | None
    p_faster: float | None
    p_one_run_faster: float | None
    runs_needed: int | None
    told_apart: bool
    sentence: str


class Comparison(View):
    """Every pair of two to six submissions of one benchmark."""

    benchmark: str
    submissions: tuple[Compared, ...]
    pairs: tuple[ComparedPair, ...]

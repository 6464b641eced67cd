"""Leaderboards: a page of rows."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from finishline.api.schema import Schema
from finishline.api.submissions import RcpView, SourceView, SystemView, WaiverView
from finishline.rules.ranking import Check, Evidence, Round
from finishline.rules.submissions.claim import TrainedWith, Tuning

Section = Literal["ranked", "elsewhere", "unchecked", "claimed", "unranked"]


class RowSubmission(Schema):
    """Submission of a row, as its submitter and its checks describe it.

    `model` is the reference's own where its runs were measured, and `claimed_model` is from the
    submitter. `precision` is the narrowest floating type touched, as claimed, and
    `precision_measured` as a replay found it. `verification_id` is the verification behind the
    status, or a running one. `package_bytes` is the size of code under xz. A `duplicate_of` an
    earlier submission has neither time nor rank. Runs of one configuration share a `pool_id`.
    """

    id: str
    submitter: str
    display_name: str | None = None
    model: str
    claimed_model: str | None = None
    framework: str
    division: str
    status: str
    trained_with: TrainedWith = "own"
    duplicate_of: str | None = None
    withdrawn: bool = False
    submitted_at: datetime
    submitted_on: date | None = None
    benchmark_sha256: str
    verification_id: str | None = None
    pool_id: str | None = None
    package_bytes: int | None = None
    precision: str | None = None
    precision_measured: str | None = None
    tuning: Tuning | None = None
    waivers: list[WaiverView] = []
    source: SourceView | None = None
    rcp: RcpView | None = None


class RowTime(Schema):
    """Time of a training to the target, in seconds.

    `seconds` is shown: `measured` by our workers, else published or claimed. `low` and `high` are
    its 95 % interval, and `raw` is the time before it was normalised. `runs` counts measured runs,
    and `claimed` is from the submitter's logs. `busy` means other programs used the processor, so
    `seconds` may be too high.
    """

    seconds: float | None
    display: str | None
    low: float | None
    high: float | None
    measured: float | None = None
    runs: int = 0
    claimed: float | None = None
    raw: float | None = None
    busy: bool = False


class RowQuality(Schema):
    """Quality of a training on a board with a budget, in the unit of the target.

    `measured` is the mean of our workers' `runs`, with its 95 % interval. `claimed` is the mean of
    the submitter's logs.
    """

    measured: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    claimed: float | None = None


class RowRuns(Schema):
    """Runs behind the time of a row.

    `quality` is the best of the runs, or the quality of an inference's model, in the unit of the
    target. `samples_per_second` covers the runs that reached the target.
    """

    reached: int
    started: int
    epochs_to_target: float | None
    evaluation_interval_seconds: float | None
    samples_per_second: float | None = None
    quality: float | None = None


class RowCost(Schema):
    """US dollars to the target, or for 10,000 answers of an inference.

    `price` is its entry of the price book, null where the system states a price.
    """

    usd: float | None
    price: int | None = None
    usd_per_10000: float | None = None


class RowLatency(Schema):
    """Milliseconds for an answer, as claimed, and a worker's median on the same hardware class."""

    claimed_ms: float | None
    measured_ms: float | None = None


class RowEnergy(Schema):
    """Mean energy of a run to the target, in the replay behind the status."""

    joules: float | None = None
    kwh: float | None = None


class BoardRow(Schema):
    """A row of a board. `rank` is null unless it is numbered, and `unranked_reason` says why.

    `section` is the part of the board: numbered rows, measured rows that another board or row of
    the submitter numbers, published rows without a checked source, claims, and rows without a rank.
    `evidence` says which time is ranked, and `check` how far a claimed time was checked.

    The row with `is_holder` holds first place. `not_first` says why a faster row doesn't.
    `head_to_head` is the verification that the holder won, or another row's latest with the holder.
    `not_separated_from` is the number of the better row that these runs can't be told from.
    `visible_gap_percent` is the smallest gap these runs can show. `variation` is the coefficient of
    variation across the runs, in percent.
    """

    rank: int | None
    tied: bool
    section: Section = "ranked"
    unranked_reason: str | None = None
    evidence: Evidence = "claimed"
    check: Check | None = None
    is_holder: bool = False
    not_first: str | None = None
    head_to_head: str | None = None
    not_separated_from: int | None = None
    visible_gap_percent: float | None = None
    submission: RowSubmission
    time: RowTime
    quality: RowQuality
    variation: float | None
    runs: RowRuns
    cost: RowCost
    latency: RowLatency
    energy: RowEnergy
    system: SystemView


GROUPS: dict[str, type[Schema]] = {
    "submission": RowSubmission,
    "time": RowTime,
    "quality": RowQuality,
    "runs": RowRuns,
    "cost": RowCost,
    "latency": RowLatency,
    "energy": RowEnergy,
}
# Columns of a board's CSV with another name than their field.
COLUMNS = {
    "submission.id": "submission_id",
    "time.seconds": "tta_seconds",
    "time.display": "tta_display",
    "time.low": "tta_low_seconds",
    "time.high": "tta_high_seconds",
    "time.measured": "measured_seconds",
    "time.runs": "measured_runs",
    "time.claimed": "claimed_seconds",
    "time.raw": "raw_tta_seconds",
    "quality.measured": "measured_quality",
    "quality.low": "quality_low",
    "quality.high": "quality_high",
    "quality.runs": "quality_runs",
    "quality.claimed": "claimed_quality",
    "variation": "cv_percent",
    "runs.reached": "runs_reached",
    "runs.started": "runs_started",
    "cost.usd": "cost_usd",
    "cost.price": "cost_price",
    "cost.usd_per_10000": "cost_usd_per_10000",
    "latency.claimed_ms": "latency_ms",
    "latency.measured_ms": "measured_latency_ms",
    "energy.joules": "energy_joules",
    "energy.kwh": "energy_kwh",
}


def _fields() -> Iterator[tuple[tuple[str, ...], str, FieldInfo]]:
    for name, field in BoardRow.model_fields.items():
        of_group = GROUPS[name].model_fields.items() if name in GROUPS else ()
        for part, inner in of_group:
            yield (name, part), COLUMNS.get(f"{name}.{part}", part), inner
        if name not in GROUPS:
            yield (name,), COLUMNS.get(name, name), field


PATHS = {column: path for path, column, _ in _fields()}
COLUMN_FIELDS = {column: field for _, column, field in _fields()}


def nested(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Build a row from its columns."""
    row: dict[str, Any] = {}
    for column, (name, *part) in PATHS.items():
        if part:
            row.setdefault(name, {})[part[0]] = columns[column]
        else:
            row[name] = columns[column]
    return row


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, with null for each absent field."""
    return {
        column: (row.get(name) or {}).get(part[0]) if part else row.get(name)
        for column, (name, *part) in PATHS.items()
    }


class WhatIfView(Schema):
    """Unofficial clock and target of a board, and a sentence on them."""

    clock: str
    target: float
    official_clock: str
    official_target: float
    note: str


class BoardPriceView(Schema):
    """Unofficial prices of a board: a price, or the price book of a day, and a sentence on it."""

    usd_per_accelerator_hour: float | None
    prices_on: date | None
    note: str


class BoardView(Schema):
    """A page of a leaderboard. `version` rises with every change of the board.

    Its entries are of one `kind`, "train" or "inference". Measured times of one `hardware_class`
    are numbered. `total` counts the entries of the query, and this page starts at place `first`,
    counted from 1.

    `what_if` is None on the official ranking, `price` where costs are as stated. `other_rules`
    names each `benchmark_sha256` with incomparable figures, and says why.
    """

    benchmark: str
    kind: str
    division: str | None
    round: Round | None = None
    hardware_class: str | None = None
    metric: str
    version: int
    total: int
    next_cursor: str | None
    entries: list[BoardRow]
    first: int | None = None
    what_if: WhatIfView | None = None
    price: BoardPriceView | None = None
    other_rules: dict[str, str] = Field(default_factory=dict)

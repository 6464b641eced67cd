"""Leaderboards: a page of entries."""

from datetime import date, datetime
from typing import Literal

from pydantic import Field

from finishline.api.schema import Schema
from finishline.api.submissions import EvidenceFields, RcpView, SystemView, WaiverView
from finishline.rules.ranking import Round

Section = Literal["ranked", "elsewhere", "unchecked", "claimed", "unranked"]


class BoardEntry(EvidenceFields):
    """One submission on a board. `rank` is None where it is not ranked, with the reason.

    `section` is the part of the board that a row stands in: numbered rows, measured rows that
    another board or row of the submitter numbers, published rows without a checked source, claims,
    and rows without a rank.

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
    section: Section = "ranked"
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


class WhatIfView(Schema):
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

    Its entries are of one `kind`, "train" or "inference". Measured times of one `hardware_class`
    are numbered. Of `total` entries that fit the query
    those from place `first` on are here, counted from 1.

    `what_if` is None on the official ranking, `price` where costs are as stated. `other_rules` has
    each `benchmark_sha256` whose figures are not comparable with those scored now, and why.
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
    entries: list[BoardEntry]
    first: int | None = None
    what_if: WhatIfView | None = None
    price: BoardPriceView | None = None
    other_rules: dict[str, str] = Field(default_factory=dict)

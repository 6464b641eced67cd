"""Request and response models of reruns: batches, decisions, comparisons."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, model_validator

from finishline.api.schema import Schema
from finishline.api.verifications import ReasonView
from server.verifications.requests import AskedFor

LARGEST_BATCH = 1000
Reason = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]
Status = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]


@dataclass(frozen=True)
class ReplayFigures:
    """One replay: seconds and epochs to the target, None if it did not reach it."""

    index: int
    seed: int
    status: str
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None


@dataclass(frozen=True)
class Difference:
    """A figure's means in both verifications, and the two-sided p-value of Welch's t-test on logs.

    `comparable` is false for times on different hardware classes.
    """

    figure: str
    first_mean: float | None
    second_mean: float | None
    ratio: float | None
    p_value: float | None
    comparable: bool


@dataclass(frozen=True)
class SystemDifference:
    """A line in which the systems of two replays differ."""

    field: str
    first: str | None
    second: str | None


class BatchCreate(Schema):
    """Submissions to verify: a list of them, or those of a benchmark, by status.

    A "replay" trains the reference as each claim says; a "latency" times its trained model.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"benchmark": "digits", "status": "verified", "reason": "new driver",
                          "dry_run": True}]
        },
    )  # fmt: skip

    submissions: list[str] | None = Field(default=None, min_length=1, max_length=LARGEST_BATCH)
    benchmark: str | None = None
    status: Status | None = None
    reason: Reason
    dry_run: StrictBool = False
    kind: AskedFor = "replay"

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if (self.submissions is None) == (self.benchmark is None):
            raise ValueError("name either submissions or a benchmark")
        if self.status is not None and self.benchmark is None:
            raise ValueError("a status chooses among the submissions of a benchmark")
        return self


class ExpectedReplay(Schema):
    """A replay of the batch. `seconds_expected` covers all its runs; `basis` names its source.

    `verification_id` is None in a dry run.
    """

    submission_id: str
    verification_id: str | None
    runs_expected: float
    seconds_expected: float
    accelerators: int
    basis: Literal["replays of the submission", "replays of the benchmark", "run limit"]


class Skipped(Schema):
    """A submission that is not replayed, and why."""

    submission_id: str
    why: str


class BatchView(Schema):
    """Replays that a batch queues, or would queue. GPU seconds are seconds times accelerators."""

    dry_run: bool
    replays: list[ExpectedReplay]
    skipped: list[Skipped]
    gpu_seconds_expected: float
    cpu_seconds_expected: float


class DecisionCreate(Schema):
    """Decision about a pending verdict: publish it, or keep the published one."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"decision": "keep", "reason": "the host was throttled"}]},
    )

    decision: Literal["publish", "keep"]
    reason: Reason


class SideView(Schema):
    """One of two compared verifications."""

    id: str
    state: str
    outcome: str | None
    published: bool
    worker: str | None
    hardware_class: str | None
    reasons: list[ReasonView]
    runs: list[ReplayFigures]


class VerificationComparison(Schema):
    """Two verifications of one submission, side by side."""

    submission_id: str
    benchmark: str
    first: SideView
    second: SideView
    same_band: bool
    differences: list[Difference]
    systems: list[SystemDifference]

"""Results of submissions as the API and the pages show them, and as they are stored."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

from rules.inference import InferenceResult
from rules.scoring import Result
from server.models import Submission


class ViolationView(BaseModel):
    """A rule the runs break."""

    model_config = ConfigDict(extra="ignore")

    code: str
    message: str
    file: str | None


class StepView(BaseModel):
    """One step of the score."""

    name: str
    formula: str
    numbers: dict[str, float | None]
    value: float | None
    unit: str


class RcpView(BaseModel):
    """The runs' convergence held against the reference's: "pass", "fail" or "missing".

    `factor` is what a passing set's raw time is multiplied by; `batch_size`, `mean` and `lowest`
    are of the reference point that was used.
    """

    verdict: str
    message: str
    factor: float
    batch_size: int | None
    mean: float | None
    lowest: float | None
    submission_mean: float | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def normalised(self) -> bool:
        """Whether the time is raised, because the set converged faster than the mean."""
        return self.verdict == "pass" and self.factor > 1.0


class ResultView(BaseModel):
    """What the runs come to, with every step. Times in seconds on the benchmark's clock.

    `raw_tta_seconds` is as measured; `tta_seconds` is normalised where `rcp` says so.
    """

    tta_seconds: float | None
    raw_tta_seconds: float | None = None
    rcp: RcpView | None = None
    tta_display: str | None
    reached: int
    started: int
    cv_percent: float | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    clock: str
    eligible: bool
    violations: list[ViolationView]
    steps: list[StepView]


class InferenceResultView(BaseModel):
    """What an inference entry comes to: nothing in it is derived from a log.

    `latency_ms` is of one item at batch size 1; `quality` is in the unit of the target. `reached`
    is whether it meets the target, without which the result is not ranked. `given_in_percent` says
    that the entry states in percent what is a fraction here.
    """

    latency_ms: float
    cost_usd_per_10000: float | None
    metric: str
    quality: float
    reached: bool
    given_in_percent: bool
    eligible: bool
    steps: list[StepView]


def result_view(submission: Submission) -> ResultView | InferenceResultView:
    """A stored result; one from before times were normalised has its time as the raw one."""
    stored = submission.result | {"eligible": submission.eligible}
    if submission.kind == "inference":
        return InferenceResultView(**stored)
    raw = {"raw_tta_seconds": stored["tta_seconds"]}
    return ResultView(**(raw | stored))


def stored_result(result: Result | InferenceResult) -> dict[str, Any]:
    """A result of the rules as the JSON that is stored, without what has a table of its own."""
    table = asdict(result)
    table.pop("benchmark_sha256")
    if isinstance(result, InferenceResult):
        return table | {"given_in_percent": result.given_in_percent}
    table.pop("runs")
    return table

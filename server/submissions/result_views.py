"""Results of submissions as the API and the pages show them, and as they are stored."""

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, computed_field

from finishline.rules.benchmarks.prices import SystemPrice, training_cost_usd
from finishline.rules.scoring.inference import InferenceResult
from finishline.rules.scoring.scoring import COST_STEP, Result
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


class CostBasisView(BaseModel):
    """The price that a cost rests on: `usd_per_hour` is of the whole system.

    From the price book it is that of entry `price`, for `count` instances; else as claimed.
    """

    source: Literal["price_book", "claim"]
    usd_per_hour: float
    price: int | None = None
    count: int | None = None
    effective_on: date | None = None
    source_url: str | None = None


class ResultView(BaseModel):
    """What the runs come to, with every step. Times in seconds on the benchmark's clock.

    `raw_tta_seconds` is as measured; `tta_seconds` is normalised where `rcp` says so. `cost_usd` is
    computed with each answer, at the price of `cost_basis`; without one there is no cost.
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
    cost_basis: CostBasisView | None
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


def result_view(submission: Submission, price: SystemPrice) -> ResultView | InferenceResultView:
    """A stored result; one from before times were normalised has its time as the raw one."""
    stored = submission.result | {"eligible": submission.eligible}
    if submission.kind == "inference":
        return InferenceResultView(**stored)
    raw = {"raw_tta_seconds": stored["tta_seconds"]}
    return ResultView(**(raw | stored | _costs(submission, price)))


def cost_basis(system: dict[str, Any], price: SystemPrice) -> CostBasisView | None:
    """What a cost at a price rests on; None without a price."""
    if price.usd_per_hour is None:
        return None
    if price.entry is None:
        return CostBasisView(
            source="claim", usd_per_hour=price.usd_per_hour, source_url=system["price_source"]
        )
    return CostBasisView(
        source="price_book",
        usd_per_hour=price.usd_per_hour,
        price=price.entry.number,
        count=price.count,
        effective_on=price.entry.price.effective_on,
        source_url=price.entry.price.source_url,
    )


def _costs(submission: Submission, price: SystemPrice) -> dict[str, Any]:
    """The cost at a price, in the step that explains it too: what is stored is as claimed."""
    tta_seconds = submission.result["tta_seconds"]
    cost = training_cost_usd(tta_seconds, price.usd_per_hour)
    numbers = {"TTA (s)": tta_seconds, "price (USD/h)": price.usd_per_hour}
    return {
        "cost_usd": cost,
        "cost_basis": cost_basis(submission.system, price),
        "steps": [
            step | {"numbers": numbers, "value": cost} if step["name"] == COST_STEP else step
            for step in submission.result["steps"]
        ],
    }


def stored_result(result: Result | InferenceResult) -> dict[str, Any]:
    """A result of the rules as the JSON that is stored, without what has a table of its own."""
    table = table_of(result, without=("runs", "benchmark_sha256"))
    if isinstance(result, InferenceResult):
        table["given_in_percent"] = result.given_in_percent
    return table


def table_of(record: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A record of the rules, and those in it, as tables.

    As `asdict`, which copies also what they hold: that takes longer than all the rest, and nobody
    changes it.
    """
    names = record.__dataclass_fields__
    return {name: _value_of(getattr(record, name)) for name in names if name not in without}


def _value_of(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return table_of(value)
    return tuple(map(_value_of, value)) if isinstance(value, tuple) else value

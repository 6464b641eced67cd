"""Result of an inference entry: latency and cost per item, if the model meets the target."""

from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import inference_cost_usd_per_10000
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs.dawnbench import DawnbenchEntry
from finishline.rules.scoring.scoring import Step

IN_PERCENT = "f1_score_in_percent"


@dataclass(frozen=True)
class InferenceResult:
    """Result of `score_inference`; nothing in it is derived from a log.

    `quality` is in the unit of the benchmark's metric, and `reached` says whether it meets the
    target. `latency_ms` is of one item at batch size 1. `flags` lists oddities of the entry that
    are no reason to refuse it.
    """

    benchmark_sha256: str
    metric: str
    quality: float
    reached: bool
    latency_ms: float
    cost_usd_per_10000: float | None
    flags: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def eligible(self) -> bool:
        """Whether the result may be ranked: the model must be as good as the target asks."""
        return self.reached

    @property
    def given_in_percent(self) -> bool:
        """Whether the entry states percent where the benchmark uses a fraction."""
        return IN_PERCENT in self.flags


def score_inference(entry: DawnbenchEntry, benchmark: Benchmark) -> InferenceResult:
    """The result of an inference entry under a benchmark's target.

    Raises RuleError if the entry lacks its latency or a quality in the benchmark's metric.
    Source: dawn-bench-entries README, "Inference".
    """
    target = benchmark.target
    if entry.latency_ms is None or entry.quality is None or entry.metric != target.metric:
        raise RuleError("no inference entry", expected=f"a latency and {target.metric}")
    cost = inference_cost_usd_per_10000(entry.cost_usd_per_item)
    reached = target.is_reached(entry.quality)
    return InferenceResult(
        benchmark_sha256=benchmark.sha256,
        metric=target.metric,
        quality=entry.quality,
        reached=reached,
        latency_ms=entry.latency_ms,
        cost_usd_per_10000=cost,
        flags=entry.flags,
        steps=_steps(entry, target, cost),
    )


def _steps(entry: DawnbenchEntry, target: QualityTarget, cost: float | None) -> tuple[Step, ...]:
    sign = ">=" if target.direction == "higher" else "<="
    source = "as stated" if IN_PERCENT not in entry.flags else "stated in percent, divided by 100"
    return (
        Step(
            "quality",
            f"{target.metric} of the model {source}; ranked if {sign} {target.value:g}",
            {"target": target.value},
            entry.quality,
            target.unit,
        ),
        Step("latency", "of one item at batch size 1, as stated", {}, entry.latency_ms, "ms"),
        Step(
            "cost of 10,000 items",
            "cost of one item as stated x 10,000",
            {"one item (USD)": entry.cost_usd_per_item},
            cost,
            "USD",
        ),
    )

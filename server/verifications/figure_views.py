"""API and page models of a verification's measured latencies and utilisation."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, TypeAdapter

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import SystemPrice
from finishline.rules.scoring.latency import FEWEST_SAMPLES, latency_result, why_absent
from finishline.rules.scoring.measurements import Figure
from finishline.rules.scoring.utilisation import run_utilisations
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import BackendLatency, ReplayReport, ReplayRun
from server.base.models import Verification
from server.base.models.visibility import sees_runs
from server.base.viewer import Viewer


class BackendView(BaseModel):
    """One backend: milliseconds for one item at batch size 1, or why it was not measured.

    `samples` were timed in `passes` over the evaluation set, None if a report has neither.
    `missing` says why a percentile is absent. `eligible` is whether the model meets the target.
    `cost_usd_per_10000` is at the price of the submission's system.
    """

    backend: str
    samples: int = 0
    passes: float | None = None
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    missing: dict[str, str] = {}
    items_per_second: float | None = None
    drift_percent: float | None = None
    cost_usd_per_10000: float | None = None
    quality: float | None = None
    eligible: bool = False
    largest_difference: float | None = None
    absence: str | None = None
    why_absent: str | None = None


def backend_views(
    verification: Verification, benchmark: Benchmark, price: SystemPrice | None
) -> list[BackendView]:
    """Backends of a measured latency; empty for other kinds and before the end."""
    if verification.kind != "latency" or verification.report is None or benchmark.latency is None:
        return []
    runs = TypeAdapter(list[ReplayRun]).validate_python(verification.report["runs"])
    return [
        _view_of(item, run, benchmark, price, warmup_items=benchmark.latency.warmup_items)
        for run in runs
        for item in run.latency
    ]


def _view_of(
    item: BackendLatency,
    run: ReplayRun,
    benchmark: Benchmark,
    price: SystemPrice | None,
    *,
    warmup_items: int,
) -> BackendView:
    reached = evaluation_at_target(benchmark, run)
    if item.absence is not None or reached is None:
        absence = item.absence
        return BackendView(
            backend=item.backend,
            absence=absence.code if absence is not None else None,
            why_absent=absence.message if absence is not None else None,
        )
    result = latency_result(
        item.milliseconds,
        warmup_items=warmup_items,
        quality=reached.quality,
        target=benchmark.target,
        price_usd_per_hour=None if price is None else price.usd_per_hour,
    )
    figures = asdict(result.figures)
    missing = {f"p{p}": why_absent(result.figures.samples, p) for p in FEWEST_SAMPLES}
    return BackendView(
        backend=item.backend,
        **figures,
        passes=item.passes,
        missing={name: why for name, why in missing.items() if why is not None},
        cost_usd_per_10000=result.cost_usd_per_10000,
        quality=result.quality,
        eligible=result.eligible,
        largest_difference=item.largest_difference,
    )


Figures = dict[str, Figure]


class UtilisationView(BaseModel):
    """One run: samples and FLOP/s of its train phase, and model FLOPs utilisation (MFU, 0 to 1).

    `roof_flops` is the roof for comparison: the worker's measured FLOP/s in the `precision` of the
    training. `intensity` is FLOP per byte. `missing` says why one of them is absent.
    """

    run: int
    samples_per_second: float | None
    achieved_flops: float | None
    utilisation: float | None
    roof_flops: float | None
    precision: str | None
    intensity: float | None
    missing: str | None


def utilisation_views(verification: Verification, figures: Figures) -> list[UtilisationView]:
    """Utilisation of each reported run; empty before the report."""
    if verification.report is None:
        return []
    report = TypeAdapter(ReplayReport).validate_python(verification.report)
    return [UtilisationView(**asdict(found)) for found in run_utilisations(report, figures)]


def hidden_runs(verification: Verification, viewer: Viewer) -> int:
    """Number of a verification's first runs whose curves are hidden from a viewer."""
    claim = verification.submission
    return 0 if claim is None or sees_runs(viewer, claim) else verification.own_runs


def without_quality(event: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Remove the quality from an event of one of the first `hidden` runs."""
    return event | {"quality": None} if event["run"] < hidden and "quality" in event else event

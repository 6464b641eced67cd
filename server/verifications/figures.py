"""Figures of a report: latencies of backends, utilisation, and energy to the target."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.verifications import BackendView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import inference_cost_usd_per_10000
from finishline.rules.measurements import Figure
from finishline.rules.scoring.latency import FEWEST_SAMPLES, LatencyFigures, latency_figures
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.latency import fastest_backend, why_unmeasured
from finishline.rules.verification.messages import BackendLatency, ReplayReport, ReplayRun
from finishline.rules.verification.utilisation import (
    RunUtilisation,
    best_roof_tflops,
    roofline,
    samples_per_second,
)
from server.base.database import utc_now
from server.base.models import Verification, WorkerProbeRow
from server.benchmarks.prices import SystemPrice, price_of_submission


def backend_views(
    session: Session, verification: Verification, benchmark: Benchmark, report: ReplayReport
) -> list[BackendView]:
    ordered = any("latency" in each.measure for each in verification.trainings)
    if benchmark.latency is None or not ordered:
        return []
    submission = verification.submission
    price = None if submission is None else price_of_submission(session, submission)
    return [
        _backend_view(item, run, benchmark, price, warmup_items=benchmark.latency.warmup_items)
        for run in report.runs
        for item in run.latency
    ]


def _backend_view(
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
    figures = latency_figures(item.milliseconds, warmup_items=warmup_items)
    missing = {f"p{p}": why_absent(figures.samples, p) for p in FEWEST_SAMPLES}
    hourly = None if price is None else price.usd_per_hour
    usd = None if hourly is None else figures.mean_ms / 3.6e6 * hourly
    return BackendView.of(
        item,
        **asdict(figures),
        missing={name: why for name, why in missing.items() if why is not None},
        cost_usd_per_10000=inference_cost_usd_per_10000(usd),
        quality=reached.quality,
        eligible=benchmark.target.is_reached(reached.quality),
    )


ROOFS_LOOKED_AT = 5  # A probe can come without roofs, from a worker that was stopped while it did.


def roofs_of_worker(session: Session, verification: Verification, worker: str) -> dict[str, Figure]:
    """Roofs that the reporting worker had last measured when it ended; empty without any."""
    rows = session.scalars(
        select(WorkerProbeRow)
        .where(
            WorkerProbeRow.worker == worker,
            WorkerProbeRow.moment == "start",
            WorkerProbeRow.measured_at <= (verification.ended_at or utc_now()),
        )
        .order_by(WorkerProbeRow.id.desc())
        .limit(ROOFS_LOOKED_AT)
    )
    found = next((row.figures for row in rows if row.figures), {})
    return {name: Figure(**figure) for name, figure in found.items()}


TERA = 1e12


def run_utilisations(
    report: ReplayReport, figures: Mapping[str, Figure]
) -> tuple[RunUtilisation, ...]:
    """The utilisation of every run of a report, by the figures that its worker last measured."""
    return tuple(_run_utilisation(run, report, figures) for run in report.runs)


def _run_utilisation(
    run: ReplayRun, report: ReplayReport, figures: Mapping[str, Figure]
) -> RunUtilisation:
    rate = samples_per_second(run)
    if rate is None:
        return RunUtilisation(run.index, missing="no evaluation was measured after training")
    if report.work is None or report.work.batch_size < 1:
        missing = "the work of a step was not counted by the worker"
        return RunUtilisation(run.index, rate, missing=missing)
    precision = report.precision.lowest if report.precision is not None else None
    best = best_roof_tflops(figures, precision)
    roof_flops = best * TERA * report.processes if best else None
    if not figures:
        missing = "the worker has no measured roof to compare with"
    elif precision is None:
        missing = "the precision of the training is unknown"
    else:
        missing = f"the worker has no measured roof in {precision}"
    point = roofline(
        report.work,
        seconds_per_step=report.work.batch_size / rate,
        roof_flops=roof_flops,
        bytes_per_second=None,
    )
    return RunUtilisation(
        run=run.index,
        samples_per_second=rate,
        achieved_flops=point.achieved_flops,
        utilisation=point.utilisation,
        roof_flops=roof_flops,
        precision=precision,
        intensity=point.intensity,
        missing=None if roof_flops else missing,
    )


def why_absent(samples: int, percent: int) -> str | None:
    """Reason why a percentile has too few samples, or None if it has enough."""
    floor = FEWEST_SAMPLES[percent]
    return f"not enough samples: {samples} of {floor}" if samples < floor else None


def energy_to_target_joules(joules_of_runs: Sequence[float | None]) -> float | None:
    """The mean joules of the runs that reached the target, None unless all were measured."""
    measured = [joules for joules in joules_of_runs if joules is not None]
    if not measured or len(measured) < len(joules_of_runs):
        return None
    return sum(measured) / len(measured)


def measured_figures(benchmark: Benchmark, report: ReplayReport) -> LatencyFigures | None:
    """The figures of the fastest backend, of a model that meets the target."""
    if benchmark.latency is None or why_unmeasured(benchmark, report) is not None:
        return None
    fastest = fastest_backend(report.runs[0], benchmark.latency)
    return fastest.figures if fastest is not None else None

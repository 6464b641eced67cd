"""Where a worker's trainings stand under its roofs: their work against what it measured."""

import statistics
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.scoring.measurements import ModelWork
from finishline.rules.scoring.utilisation import roofline
from server.models import Attempt, BenchmarkDefinition, Submission, Verification
from server.workers.probes import latest_probes
from server.workers.roofline_schemas import RooflinePointView, RooflineView, RoofView
from server.workers.schemas import ProbeView

POINTS = 30
TERA, GIGA = 1e12, 1e9
ARITHMETIC = ("gemm", "convolution")


def worker_roofline(session: Session, name: str) -> RooflineView:
    """The roofline of a worker's latest attempts."""
    probe = latest_probes(session, with_figures=True).get(name)
    roofs = _roofs(probe)
    copy = probe.figures.get("copy") if probe is not None else None
    rows = session.execute(
        select(
            Verification.id,
            Verification.report,
            BenchmarkDefinition.benchmark_id,
            Submission.model,
        )
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .where(Attempt.worker == name, Attempt.state == "done", Verification.report.is_not(None))
        .order_by(Attempt.ended_at.desc())
        .limit(POINTS)
    )
    bandwidth = copy.value if copy is not None else None
    points = (_point(row, roofs, bandwidth) for row in rows)
    return RooflineView(
        worker=name,
        roofs=roofs,
        copy_gb_per_second=bandwidth,
        points=[point for point in points if point is not None],
    )


def _roofs(probe: ProbeView | None) -> list[RoofView]:
    best: dict[str, RoofView] = {}
    for name, figure in probe.figures.items() if probe is not None else ():
        what, _, precision = name.partition("_")
        if what not in ARITHMETIC or figure.value is None:
            continue
        if precision not in best or figure.value > best[precision].tflops:
            best[precision] = RoofView(precision=precision, tflops=figure.value, how=figure.how)
    return sorted(best.values(), key=lambda roof: -roof.tflops)


def _point(row: Any, roofs: list[RoofView], bandwidth: float | None) -> RooflinePointView | None:
    """None where the report tells no work, or no run got anywhere."""
    report: Mapping[str, Any] = row.report or {"runs": []}
    work, seconds = report.get("work"), seconds_per_step(report)
    if work is None or seconds is None or not work["step_bytes"]:
        return None
    precision = (report.get("precision") or {}).get("lowest")
    roof = next((roof.tflops for roof in roofs if roof.precision == precision), None)
    found = roofline(
        ModelWork(**work),
        seconds_per_step=seconds,
        roof_flops=roof * TERA if roof is not None else None,
        bytes_per_second=bandwidth * GIGA if bandwidth is not None else None,
    )
    attainable = found.attainable_flops
    return RooflinePointView(
        verification_id=row.id,
        benchmark=row.benchmark_id,
        model=row.model,
        precision=precision,
        intensity=work["step_flops"] / work["step_bytes"],
        achieved_tflops=found.achieved_flops / TERA,
        attainable_tflops=attainable / TERA if attainable is not None else None,
        share_of_attainable=found.of_attainable,
        bound=found.bound,
    )


def seconds_per_step(report: Mapping[str, Any]) -> float | None:
    """Seconds in training for one step, the median over the runs of a report.

    None where the work or the samples that were trained on are not told.
    """
    work = report.get("work")
    if work is None:
        return None
    each = []
    for run in report["runs"]:
        last = run["evaluations"][-1] if run["evaluations"] else None
        if last is None or not last["samples"]:
            continue
        seconds = last["ledger"].get("train") or last["seconds"]
        if seconds:
            each.append(seconds * work["batch_size"] / last["samples"])
    return statistics.median(each) if each else None

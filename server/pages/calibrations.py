"""Pages of a benchmark's calibrations, and of its reference by batch size."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from server.base.models import Calibration
from server.base.services import Services, ServicesDep
from server.benchmarks import calibrations as queries
from server.benchmarks.convergence import convergence_view
from server.benchmarks.queries import definition, find_benchmark
from server.benchmarks.views import benchmark_view
from server.verifications import calibration_endpoints as views
from server.verifications.calibrations import CalibrationSummary
from web.chart_parts import Figure
from web.render import render
from web.replay_chart import calibration_figure

router = APIRouter(include_in_schema=False)
LATEST = 100
FILE = "file"
BenchmarkQuery = Annotated[str | None, Query(max_length=100)]
WithQuery = Annotated[str | None, Query(alias="with", max_length=20)]


@router.get("/calibrations", response_class=HTMLResponse)
def calibrations_page(services: ServicesDep, benchmark: BenchmarkQuery = None) -> str:
    """Every calibration, benchmark by benchmark, the newest first."""
    chosen = find_benchmark(services.benchmarks, benchmark) if benchmark else None
    with services.database.read() as session:
        summaries = _summaries(session, benchmark or None, services.benchmarks)
        judging = queries.judging_ids(session)
    names = list(dict.fromkeys(each.benchmark for each in summaries))
    return render(
        "calibrations.html",
        boards=[
            {
                "id": name,
                "title": services.benchmarks[name].title if name in services.benchmarks else name,
                "calibrations": [
                    each.model_dump(mode="json") | {"judges": each.id in judging}
                    for each in summaries
                    if each.benchmark == name
                ],
            }
            for name in names
        ],
        chosen={"id": chosen.benchmark_id, "title": chosen.title} if chosen is not None else None,
    )


@router.get("/calibrations/{calibration_id}", response_class=HTMLResponse)
def calibration_page(calibration_id: str, services: ServicesDep, other: WithQuery = None) -> str:
    """A calibration: its progress, its measurements, and its effect if adopted.

    It is compared with the calibration that `other` names, by default with the adopted one of its
    precision, then of the reference's own, and without any with the runs of the benchmark's file.
    """
    with services.database.read() as session:
        calibration = queries.find_calibration(session, calibration_id)
        sha256 = calibration.benchmark_sha256
        judging = queries.adopted_calibration(session, sha256, calibration.precision)
        second = _second(session, calibration, judging, other)
        benchmark = definition(session, calibration.benchmark_sha256)
        own = _summaries(session, calibration.benchmark_id, services.benchmarks)
        shown = views.calibration_view(session, calibration, services.benchmarks)
        comparison = views.comparison_view(session, calibration, second)
        bands = _bands(session, services, calibration)
    return render(
        "calibration.html",
        calibration=shown.model_dump(mode="json"),
        comparison=comparison.model_dump(mode="json"),
        bands=bands,
        benchmark=benchmark_view(benchmark).model_dump(mode="json"),
        judging=judging.id if judging is not None else None,
        others=[each.model_dump(mode="json") for each in own if each.id != calibration_id],
    )


def _bands(session: Session, services: Services, calibration: Calibration) -> Figure:
    benchmark = definition(session, calibration.benchmark_sha256)
    shown = views.calibration_view(session, calibration, services.benchmarks)
    runs = views.runs_view(session, calibration).model_dump(mode="json")["runs"]
    target = benchmark_view(benchmark).target.model_dump(mode="json")
    return calibration_figure(shown.model_dump(mode="json")["sizes"], runs, target)


def _summaries(
    session: Session, benchmark_id: str | None, offered: views.Offered
) -> list[CalibrationSummary]:
    counts = queries.count_runs(session)
    found = queries.list_calibrations(session, benchmark_id=benchmark_id, limit=LATEST)
    return [views.summary(each, finished=counts.get(each.id, 0), offered=offered) for each in found]


def _second(
    session: Session, calibration: Calibration, judging: Calibration | None, other: str | None
) -> Calibration | None:
    """The calibration to compare with; None for the runs of the benchmark's file."""
    if other and other != FILE:
        return queries.find_calibration(session, other)
    if other == FILE:
        return None
    if judging is not None and judging.id != calibration.id:
        return judging
    is_own = calibration.precision is None
    return None if is_own else queries.adopted_calibration(session, calibration.benchmark_sha256)


@router.get("/benchmarks/{benchmark_id}/convergence", response_class=HTMLResponse)
def convergence_page(benchmark_id: str, services: ServicesDep) -> str:
    """The reference's convergence, and the submissions on it."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        convergence = convergence_view(session, benchmark)
    shown = benchmark_view(benchmark)
    return render(
        "convergence.html",
        benchmark=shown.model_dump(mode="json"),
        convergence=convergence.model_dump(mode="json"),
    )

"""Pages of a benchmark's calibrations, and of its reference by batch size."""

from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from server.base.models import Calibration
from server.base.services import Services
from server.benchmarks import calibrations as queries
from server.benchmarks.convergence import convergence_view
from server.benchmarks.definitions import definition, find_benchmark
from server.benchmarks.views import benchmark_view
from server.pages.declared import Context, plain, public_page
from server.verifications import calibration_views as views
from web.replay_chart import calibration_figure

LATEST = 100
FILE = "file"
BenchmarkQuery = Annotated[str | None, Query(max_length=100)]
WithQuery = Annotated[str | None, Query(alias="with", max_length=20)]


@public_page("/calibrations", "calibrations.html", to_all=True)
def calibrations_page(
    session: Session, services: Services, benchmark: BenchmarkQuery = None
) -> Context:
    """Every calibration, benchmark by benchmark, the newest first."""
    offered = services.benchmarks
    chosen = find_benchmark(offered, benchmark) if benchmark else None
    summaries = views.list_calibrations(session, services, benchmark or None, LATEST).calibrations
    judging = queries.judging_ids(session)
    return {
        "boards": [
            {
                "id": name,
                "title": offered[name].title if name in offered else name,
                "calibrations": [
                    plain(each) | {"judges": each.id in judging}
                    for each in summaries
                    if each.benchmark == name
                ],
            }
            for name in dict.fromkeys(each.benchmark for each in summaries)
        ],
        "chosen": chosen and {"id": chosen.benchmark_id, "title": chosen.title},
    }


@public_page("/calibrations/{calibration_id}", "calibration.html", to_all=True)
def calibration_page(
    session: Session, services: Services, calibration_id: str, other: WithQuery = None
) -> Context:
    """A calibration: its progress, its measurements, and its effect if adopted.

    It is compared with the calibration that `other` names, by default with the adopted one of its
    precision, then of the reference's own, and without any with the runs of the benchmark's file.
    """
    calibration = queries.find_calibration(session, calibration_id)
    sha256 = calibration.benchmark_sha256
    judging = queries.adopted_calibration(session, sha256, calibration.precision)
    second = _second(session, calibration, judging, other)
    listed = views.list_calibrations(session, services, calibration.benchmark_id, LATEST)
    shown = plain(views.get_calibration(session, services, calibration_id))
    benchmark = benchmark_view(definition(session, sha256))
    runs = plain(views.get_calibration_runs(session, calibration_id))["runs"]
    return {
        "calibration": shown,
        "comparison": views.compare_calibrations(
            session, calibration_id, None if second is None else second.id
        ),
        "bands": calibration_figure(shown["sizes"], runs, plain(benchmark.target)),
        "benchmark": benchmark,
        "judging": judging and judging.id,
        "others": [each for each in listed.calibrations if each.id != calibration_id],
    }


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


@public_page("/benchmarks/{benchmark_id}/convergence", "convergence.html", to_all=True)
def convergence_page(session: Session, services: Services, benchmark_id: str) -> Context:
    """The reference's convergence, and the submissions on it."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    return {
        "benchmark": benchmark_view(benchmark),
        "convergence": convergence_view(session, benchmark),
    }

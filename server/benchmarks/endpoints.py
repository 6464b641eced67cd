"""Benchmarks: read them with the number and the convergence of their submissions, and add one."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from fastapi import Request, Response
from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from finishline.api.benchmarks import BenchmarkList, BenchmarkView, PhasesView, RunsView
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ConvergenceUnit, RcpRule, ReferencePoint
from finishline.rules.scoring.convergence import (
    FACTOR_COUNTS,
    ConvergenceLimit,
    convergence_limits,
    limit_at,
    prune,
)
from finishline.rules.scoring.tta import calibrated_epochs, calibrated_sizes
from finishline.rules.statistics.aggregate import mean, olympic_mean
from finishline.rules.trainings.own_benchmark import FILE, LARGEST_BYTES, MOST_FILES
from server.base.board_versions import board_versions, cached_for_board
from server.base.database import Services, ServicesDep, benchmarks_of, utc_now
from server.base.errors import NotFoundError
from server.base.forms import (
    files_part,
    multipart_body,
    read_files,
    read_text,
    text_part,
    with_form,
)
from server.base.models import DISPLAY_NAME, SUBMITTER, RunRow, Submission
from server.base.visibility import ranks
from server.benchmarks.definitions import (
    adopted_calibration,
    definition_text,
    find_benchmark,
    judging_benchmark,
    pinned_files,
    read_benchmark_file,
)
from server.benchmarks.in_force import add_benchmark
from server.benchmarks.phases import NO_DATES, all_current_dates, current_dates, phases_at
from server.people.callers import Caller, OrganiserDep
from server.people.declared import Routes
from web.names import hardware_words


@dataclass(frozen=True)
class Counts:
    """Number of submissions of one benchmark by kind and evidence, and of contradicted claims.

    `slowest_published` has the longest published time (seconds) of each division. `published`
    counts results published elsewhere by kind and division.
    """

    train: int = 0
    inference: int = 0
    claimed: int = 0
    measured: int = 0
    contradicted: int = 0
    slowest_published: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[tuple[str, str], int] = field(default_factory=dict)


NO_SUBMISSIONS = Counts()
UNITS: dict[ConvergenceUnit, Literal["epochs", "samples", "steps"]] = {
    "epoch_num": "epochs",
    "samples_count": "samples",
    "steps": "steps",
}


def count_submissions(session: Session, benchmark_ids: Iterable[str]) -> dict[str, Counts]:
    """Count submissions without withdrawn ones, cached because counting a million is slow."""
    versions = board_versions(session)
    return {
        benchmark_id: cached_for_board(
            session,
            benchmark_id,
            "counts",
            partial(_count, session, benchmark_id),
            version=versions[benchmark_id],
        )
        for benchmark_id in benchmark_ids
        if benchmark_id in versions
    }


def _count(session: Session, benchmark_id: str) -> Counts:
    by = (Submission.kind, Submission.evidence, Submission.check_word, Submission.division)
    seconds_if_eligible = case((Submission.eligible.is_(True), Submission.tta_seconds))
    longest = func.max(seconds_if_eligible)
    of_it = (Submission.benchmark_id == benchmark_id, ranks())
    rows = session.execute(select(*by, func.count(), longest).where(*of_it).group_by(*by)).all()
    count: Counter[str] = Counter()
    slowest_published: dict[str, float] = {}
    published: Counter[tuple[str, str]] = Counter()
    for kind, evidence, check, division, number, most in rows:
        told = "contradicted" if check == "contradicted" else evidence
        count.update({kind: number, told: number})
        if evidence == "published":
            published[kind, division] += number
        if told == "published" and most is not None:
            slowest_published[division] = max(most, slowest_published.get(division, most))
    names = ("train", "inference", "claimed", "measured", "contradicted")
    return Counts(
        **{name: count[name] for name in names},
        slowest_published=slowest_published,
        published=published,
    )


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """Make the view of a benchmark with the number of its submissions."""
    return BenchmarkView.of(
        benchmark,
        id=benchmark.benchmark_id,
        clock=benchmark.clock.name,
        runs=RunsView.of(benchmark.runs, started=benchmark.runs.wanted),
        replayable=benchmark.replay is not None,
        convergence_unit=UNITS[benchmark.convergence_unit],
        submissions=counts.train + counts.inference,
        inference_submissions=counts.inference,
        phases=phases,
    )


STEPS_BETWEEN_POINTS = 12


class EnvelopePoint(Schema):
    """Point on the line through the points kept by pruning."""

    batch_size: int
    mean: float
    lowest: float | None


class ReferencePointView(EnvelopePoint):
    """Reference at one batch size. `lowest` is null if it limits no submission."""

    stdev: float
    pruned: bool


class PlacedSubmission(Schema):
    """A submission by its batch size and the mean of its runs' convergence."""

    id: str
    submitter: str
    display_name: str | None = None
    model: str
    hardware: str
    division: str
    batch_size: int
    mean: float
    verdict: str | None
    normalised: bool


class CalibratedPoints(Schema):
    """Points of the calibration that judges verifications planned today."""

    id: str
    version: int
    points: list[ReferencePointView]


class ConvergenceView(Schema):
    """Epochs or samples to converge by batch size, of the reference and the submissions.

    If `judged`, closed submissions are compared with `lowest`, less the `allowance`. `left_out`
    counts submissions without a known batch size or without convergence. `points` come from the
    benchmark's file, `calibration` has measured and adopted points.
    """

    benchmark: str
    unit: str
    judged: bool
    allowance: float
    points: list[ReferencePointView]
    envelope: list[EnvelopePoint]
    submissions: list[PlacedSubmission]
    left_out: int
    calibration: CalibratedPoints | None = None


def _reference(benchmark: Benchmark) -> tuple[list[ReferencePointView], list[EnvelopePoint]]:
    """Place the reference at each batch size, and on a line with even steps on a log axis."""
    is_judged, runs = benchmark.rcp is not None, max(3, benchmark.runs.count)
    rule = benchmark.rcp or RcpRule("all", 0.0, _points_of_calibration(benchmark))
    limits = list(convergence_limits(rule, replace(benchmark.runs, count=runs), pruned=False))
    kept = list(prune(limits)) if is_judged else limits
    sizes = {point.batch_size for point in kept}
    for low, high in itertools.pairwise(kept):
        ratio = high.batch_size / low.batch_size
        for step in range(1, STEPS_BETWEEN_POINTS):
            sizes.add(math.floor(low.batch_size * ratio ** (step / STEPS_BETWEEN_POINTS)))
    line = [limit_at(size, kept, runs=runs) for size in sorted(sizes)]

    def lowest(limit: ConvergenceLimit) -> float | None:
        return limit.lowest if is_judged else None

    return (
        [ReferencePointView.of(e, lowest=lowest(e), pruned=e not in kept) for e in limits],
        [EnvelopePoint.of(e, lowest=lowest(e)) for e in line if e is not None],
    )


def _points_of_calibration(benchmark: Benchmark) -> tuple[ReferencePoint, ...]:
    """Take points from successful calibrated runs, where enough succeeded to average."""
    points = [
        ReferencePoint(size, calibrated_epochs(benchmark, size))
        for size in calibrated_sizes(benchmark)
    ]
    return tuple(point for point in points if len(point.epochs) > 2 * benchmark.runs.dropped)


def _placed_submissions(session: Session, benchmark: Benchmark) -> list[PlacedSubmission | None]:
    of_benchmark = and_(
        Submission.benchmark_id == benchmark.benchmark_id, Submission.kind == "train", ranks()
    )
    figures: dict[str, list[Any]] = defaultdict(list)
    for run in session.execute(
        select(RunRow.submission_id, RunRow.batch_size, RunRow.convergence)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(of_benchmark)
        .order_by(RunRow.index)
    ):
        figures[run.submission_id].append(run)
    submissions = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.system,
            Submission.division,
            Submission.hyperparameters,
            Submission.trained_with,
            Submission.result,
            SUBMITTER,
            DISPLAY_NAME,
        )
        .join(Submission.user)
        .outerjoin(Submission.published)
        .where(of_benchmark)
        .order_by(Submission.submitted_at, Submission.id)
    )
    return [_placed(row, figures[row.id], benchmark) for row in submissions]


def _placed(row: Any, runs: Sequence[Any], benchmark: Benchmark) -> PlacedSubmission | None:
    rcp = row.result.get("rcp")
    batch_size = _batch_size(row, runs, benchmark)
    convergence = _mean_convergence(rcp, runs, dropped=benchmark.runs.dropped)
    if batch_size is None or convergence is None:
        return None
    return PlacedSubmission.of(
        row,
        hardware=hardware_words(row.system),
        batch_size=batch_size,
        mean=convergence,
        verdict=rcp["verdict"] if rcp else None,
        normalised=bool(rcp) and rcp["verdict"] in FACTOR_COUNTS and rcp["factor"] > 1.0,
    )


def _batch_size(row: Any, runs: Sequence[Any], benchmark: Benchmark) -> int | None:
    """Find the batch size in the logs, else as stated. Returns None if the runs differ.

    A training of the reference that states none had the reference's.
    """
    logged = {run.batch_size for run in runs if run.batch_size is not None}
    if logged:
        return next(iter(logged)) if len(logged) == 1 else None
    usual = benchmark.defaults() if row.trained_with == "reference" else {}
    claimed = (usual | row.hyperparameters).get("batch_size")
    return None if claimed is None else int(claimed)


def _mean_convergence(rcp: Any, runs: Sequence[Any], *, dropped: int) -> float | None:
    """Return the judged mean, else the olympic mean as for times, else the converged runs' mean."""
    if rcp is not None:
        judged: float | None = rcp["submission_mean"]
        return judged
    figures = [run.convergence for run in runs]
    if len(figures) > 2 * dropped and (olympic := olympic_mean(figures, dropped=dropped)):
        return olympic
    converged = [figure for figure in figures if figure is not None]
    return mean(converged) if converged else None


router = Routes(tags=["benchmarks"])
TOML_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        # Client generators know only the general type.
        "content": {"application/toml": {}, "text/plain": {}},
        "description": "The definition, byte for byte.",
    }
}
FILE_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file, byte for byte."}
}
FIELDS = ("files", "reason")
PARTS = f"A benchmark has parts 'files', {FILE} and the files that it pins"
MULTIPART = multipart_body(
    {
        "files": files_part(
            "The definition, benchmark.toml, and every file that its [trainings.files] pins, each "
            "under its name in the folder."
        ),
        "reason": text_part("Kept in the audit log."),
    },
    "files",
) | {
    "responses": {"200": {"description": "The same content was added before; nothing changed."}},
}


@router.read("/benchmarks", to_all=True)
def list_benchmarks(session: Session) -> BenchmarkList:
    """List every benchmark, with the number of its submissions."""
    counts = count_submissions(session, benchmarks_of(session))
    dates, now = all_current_dates(session), utc_now()
    return BenchmarkList(
        benchmarks=[
            benchmark_view(
                benchmark,
                counts.get(benchmark_id, NO_SUBMISSIONS),
                phases=phases_at(dates.get(benchmark_id, NO_DATES), now, benchmark),
            )
            for benchmark_id, benchmark in benchmarks_of(session).items()
        ]
    )


@router.read(
    "/benchmarks/{benchmark_id}.toml", to_all=True, response_class=Response, responses=TOML_ANSWER
)
def get_definition(session: Session, benchmark_id: str) -> Response:
    """Download the definition in force, as a file to train and to check under.

    Its SHA-256 is the `sha256` of the benchmark.
    """
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    return Response(definition_text(session, benchmark), media_type="application/toml")


@router.read("/benchmarks/{benchmark_id}", to_all=True)
def get_benchmark(session: Session, benchmark_id: str) -> BenchmarkView:
    """Read a benchmark: its target, clock, data set, phase, and how runs become a result."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    counts = count_submissions(session, [benchmark_id])
    phases = phases_at(current_dates(session, benchmark_id), utc_now(), benchmark)
    return benchmark_view(benchmark, counts.get(benchmark_id, NO_SUBMISSIONS), phases=phases)


@router.read("/benchmarks/{benchmark_id}/convergence", to_all=True)
def get_convergence(session: Session, benchmark_id: str) -> ConvergenceView:
    """Read epochs or samples to converge by batch size, of the reference and the submissions.

    Without runs of its reference a benchmark has no points.
    """
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    adopted = adopted_calibration(session, benchmark.sha256)
    calibration = None
    if adopted is not None:
        judging = judging_benchmark(session, benchmark.sha256, adopted.id)
        calibration = CalibratedPoints.of(adopted, points=_reference(judging)[0])
    placed = _placed_submissions(session, benchmark)
    points, envelope = _reference(benchmark)
    return ConvergenceView(
        benchmark=benchmark_id,
        unit=UNITS[benchmark.convergence_unit],
        judged=benchmark.rcp is not None,
        allowance=benchmark.rcp.allowance if benchmark.rcp is not None else 0.0,
        points=points,
        envelope=envelope,
        submissions=[view for view in placed if view is not None],
        left_out=sum(view is None for view in placed),
        calibration=calibration,
    )


@router.post("/benchmarks", status_code=201, openapi_extra=MULTIPART)
async def create_benchmark(
    request: Request, response: Response, services: ServicesDep, caller: OrganiserDep
) -> BenchmarkView:
    """Add a benchmark of your own, or a later version of it. It is offered at once.

    409 for an id of the server's own folder and for frozen rules, 422 with every problem of file,
    line and field. The same content again changes nothing and is answered 200.
    """
    view, changed = await with_form(
        request, partial(_add, services, caller), max_files=MOST_FILES + 1, parts=PARTS
    )
    response.headers["Location"] = f"/api/v1/benchmarks/{view.id}"
    if not changed:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return view


def _add(services: Services, caller: Caller, form: FormData) -> tuple[BenchmarkView, bool]:
    files = read_files(form, fields=FIELDS, most_bytes=LARGEST_BYTES, expected=PARTS)
    reason = read_text(form, "reason", expected="a text")
    benchmark, changed = add_benchmark(services, caller, files, reason=reason)
    return benchmark_view(benchmark), changed


@router.get(
    "/benchmarks/{benchmark_id}/files/{name:path}", response_class=Response, responses=FILE_ANSWER
)
def get_benchmark_file(benchmark_id: str, name: str, services: ServicesDep) -> Response:
    """Download a file pinned by a benchmark's definition, such as its task.

    With the definition it is enough to train a code submission at home. A task is public, because
    its labels are public or drawn from a nonce.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    pinned = pinned_files(benchmark)
    if name not in pinned:
        known = ", ".join(pinned) or "none"
        raise NotFoundError(f"Benchmark {benchmark_id} has no file {name!r}; it has: {known}.")
    return Response(
        read_benchmark_file(services, benchmark, name, pinned[name]),
        media_type="application/octet-stream",
        headers={"X-Content-Type-Options": "nosniff"},
    )

"""Show verifications, live while they run, calibrations, workers and proofs."""

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.purposes import HEAD_TO_HEAD, is_in_box
from finishline.rules.verification.replay import processor_shares
from server.base.database import Services, benchmarks_of, find_row
from server.base.models import Calibration, Submission, Verification
from server.base.standing import find_verification, report_of
from server.benchmarks import calibrations as queries
from server.benchmarks.definitions import adopted_calibration, definition, find_benchmark
from server.benchmarks.endpoints import benchmark_view, get_convergence
from server.boards.live import read_race
from server.boards.rows import measured_runs
from server.pages.declared import Context, plain, public_page
from server.pages.entries import has_halves, trainings_table, untimed_runs
from server.pages.queries import verification_context
from server.people.declared import Routes
from server.verifications import calibrations as views
from server.verifications.proofs import list_keys
from server.verifications.queue import get_queue, read_place
from server.verifications.worker_endpoints import CursorDep, count_workers, get_worker, list_workers
from server.verifications.workers import IS_CANARY, list_probes, read_probes
from web.charts.verification import calibration_chart, replay_chart
from web.formats import TimeFormat

router = Routes(include_in_schema=False)


@public_page("/verifications/{verification_id}", "verification.html")
def verification_page(session: Session, verification_id: str) -> Context:
    """Show a replay, live while it runs, and its verdict when it has ended."""
    verification = find_verification(session, verification_id)
    context = verification_context(session, verification)
    shown = context.pop("verification")
    time = context["time"]
    return context | {"shown": shown_verification(session, verification, shown, time)}


def shown_verification(
    session: Session, row: Verification, verification: Context, time: TimeFormat
) -> Context:
    """Describe a verification for its page and its submission's, with its runs and its place."""
    race = read_race(session, row).model_dump(mode="json")
    benchmark = definition(session, row.benchmark_sha256)
    report = report_of(row)
    shares = {} if report is None else processor_shares(report)
    is_code = row.submission is not None and row.submission.trained_with == "package"
    return {
        "verification": verification,
        "chart": replay_chart(verification, race, time, is_code=is_code),
        "race": race,
        "place": _place(session, row),
        "halves": is_in_box(row.kind) and has_halves(benchmark),
        "untimed": untimed_runs(row),
        "measured": _measured(session, row, benchmark),
        # Percent of the processor for other programs, by run.
        "others": {index: 100 * (1 - share) for index, share in shares.items()},
        "parts": _parts(row),
        "most_pairs": benchmark.ranking.pairs,
        "benchmark": benchmark,
        "trainings": trainings_table(benchmark),
    }


def _measured(session: Session, row: Verification, benchmark: Benchmark) -> Context | None:
    """The time or quality of the runs that a verification adds to its submission's, and their
    number. A head-to-head has pairs instead.
    """
    if row.submission_id is None or row.kind == HEAD_TO_HEAD.name:
        return None
    known = measured_runs(session, Submission.id == row.submission_id)[row.submission_id]
    runs = [run for run in known if run.verification_id == row.id]
    figure = benchmark.score.measured([benchmark.score.figure(run) for run in runs])
    return None if figure is None else {"figure": figure, "runs": len(runs), "all": len(known)}


def _parts(verification: Verification) -> list[str]:
    if verification.kind != HEAD_TO_HEAD.name:
        return []
    found = [each.id for each in verification.earlier_stages]
    stage: Verification | None = verification
    while stage is not None:
        found.append(stage.id)
        stage = stage.continued_by
    return found


@router.read("/verifications/{verification_id}/charts/replay.json")
def replay_figure(session: Session, verification_id: str) -> Context:
    """Answer a replay's curves with the compared curves and the band."""
    verification = find_verification(session, verification_id)
    context = verification_context(session, verification)
    race = read_race(session, verification).model_dump(mode="json")
    return replay_chart(context["verification"], race, context["time"]).figure


def _place(session: Session, verification: Verification) -> Context | None:
    found = read_place(session, verification.id) if verification.state == "queued" else None
    if found is None:
        return None
    queue, item = (part.model_dump(mode="json") for part in found)
    return {"queue": queue, "item": item}


LATEST = 100
FILE = "file"
BenchmarkQuery = Annotated[str | None, Query(max_length=100)]
WithQuery = Annotated[str | None, Query(alias="with", max_length=20)]


@public_page("/calibrations", "calibrations.html", to_all=True)
def calibrations_page(session: Session, benchmark: BenchmarkQuery = None) -> Context:
    """Show every calibration, benchmark by benchmark, the newest first."""
    offered = benchmarks_of(session)
    chosen = find_benchmark(offered, benchmark) if benchmark else None
    summaries = views.list_calibrations(session, benchmark or None, LATEST).calibrations
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
def calibration_page(session: Session, calibration_id: str, other: WithQuery = None) -> Context:
    """Show a calibration: its progress, its measurements, and its effect if adopted.

    It is compared with the calibration that `other` names. By default that is the adopted one of
    its precision, then of the reference's own, else the runs of the benchmark's file.
    """
    calibration = find_row(session, Calibration, calibration_id)
    sha256 = calibration.benchmark_sha256
    judging = adopted_calibration(session, sha256, calibration.precision)
    second = _second(session, calibration, judging, other)
    listed = views.list_calibrations(session, calibration.benchmark_id, LATEST)
    shown = plain(views.get_calibration(session, calibration_id))
    benchmark = benchmark_view(definition(session, sha256))
    runs = plain(views.get_calibration_runs(session, calibration_id))["runs"]
    return {
        "calibration": shown,
        "comparison": views.compare_calibrations(
            session, calibration_id, None if second is None else second.id
        ),
        "bands": calibration_chart(shown["sizes"], runs, plain(benchmark.target)),
        "benchmark": benchmark,
        "judging": judging and judging.id,
        "others": [each for each in listed.calibrations if each.id != calibration_id],
    }


def _second(
    session: Session, calibration: Calibration, judging: Calibration | None, other: str | None
) -> Calibration | None:
    """Choose the calibration to compare with. None for the runs of the benchmark's file."""
    if other and other != FILE:
        return find_row(session, Calibration, other)
    if other == FILE:
        return None
    if judging is not None and judging.id != calibration.id:
        return judging
    is_own = calibration.precision is None
    return None if is_own else adopted_calibration(session, calibration.benchmark_sha256)


@public_page("/benchmarks/{benchmark_id}/convergence", "convergence.html", to_all=True)
def convergence_page(session: Session, benchmark_id: str) -> Context:
    """Show the reference's convergence, and the submissions on it."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    convergence = get_convergence(session, benchmark_id)
    return {"benchmark": benchmark_view(benchmark), "convergence": convergence}


SHORT_HISTORY = 40


@public_page("/workers", "workers.html")
def workers_page(session: Session, cursor: CursorDep = None) -> Context:
    """Show a page of workers, and the waiting attempts of each queue."""
    page = list_workers(session, cursor=cursor)
    names, following = [worker.name for worker in page.workers], page.next_cursor
    return {
        "workers": page.workers,
        "counts": count_workers(session),
        "first": None if cursor is None else "/workers",
        "following": following and f"/workers?{urlencode({'cursor': following})}",
        "queue": get_queue(session),
        "readings": read_probes(session, names, IS_CANARY, each=SHORT_HISTORY),
    }


@public_page("/workers/{name:path}", "worker.html")
def worker_page(session: Session, name: str) -> Context:
    """Show a worker: its state, its benchmarks, its jobs and measurements."""
    detail = get_worker(session, name)
    ended = (
        (each.started_at + timedelta(seconds=each.seconds)).isoformat()
        for each in detail.attempts
        if each.started_at is not None and each.seconds is not None
    )
    return {
        **dict(detail),
        "probes": list_probes(session, name).probes,
        "last_ended": next(ended, None),
        "benchmarks": [
            {
                "title": each.title,
                "replayable": each.replay is not None,
                "takes_code": each.trainings is not None,
            }
            for each in benchmarks_of(session).values()
        ],
    }


@public_page("/proof", "proof.html", to_all=True)
def proof_page(services: Services) -> Context:
    """Show the page that checks a proof in its reader's browser, without sending it."""
    return {"keys": list_keys(services).model_dump_json(indent=1)}

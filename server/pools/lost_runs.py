"""The runs that lost attempts finished: each stands as it was when it is trained again.

A lost attempt has no report to draw a cross-check from. So its runs count if an organisers' worker
trained them, or if the report of a later attempt agrees about the same seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.verification.cross_check import compare_runs
from finishline.rules.verification.judge_time import why_not_timed
from finishline.rules.verification.messages import ReplayReport, ReplayRun, WorkerSystem
from finishline.rules.verification.report_check import check_report
from finishline.rules.verification.report_stream import CLOCK_SLACK_SECONDS
from finishline.rules.verification.sealed_runs import SealedRun, sealed_runs
from server.models import Attempt, Verification, WorkerRow
from server.pools.posted_runs import ENDED_EARLY, posted_runs
from server.verifications.report_checks import posted_events, why_refused
from server.workers.owners import is_organisers_worker

# A worker that said one thing and posted another, or is out, is not believed about any run.
NOT_BELIEVED = ("report_refused", "worker_drifted", "device_unfit")


@dataclass(frozen=True)
class LostAttempt:
    """The finished runs of an attempt, as its worker would have reported them."""

    attempt_id: str
    report: ReplayReport
    by_organisers: bool


def first_finished(
    session: Session,
    verification: Verification,
    benchmark: Benchmark,
    report: ReplayReport | None,
    *,
    hardware_class: str,
) -> list[tuple[str, SealedRun]]:
    """The sealed runs of a verification: of each seed the training that was finished first.

    Each comes with the id of its attempt.

    Without a `report` they are those of lost attempts alone. What was not timed on a quiet
    worker of the class is left out.
    """
    own_runs = verification.own_runs
    found: dict[int, tuple[str, SealedRun]] = {}
    for lost in _lost_attempts(session, verification, benchmark):
        believed = [run for run in lost.report.runs if _is_believed(lost, run, benchmark, report)]
        timed = replace(lost.report, runs=believed)
        if why_not_timed(timed, hardware_class=hardware_class) is None:
            for run in sealed_runs(benchmark, timed, own_runs=own_runs):
                found.setdefault(run.index, (lost.attempt_id, run))
    if report is not None and why_not_timed(report, hardware_class=hardware_class) is None:
        for run in sealed_runs(benchmark, report, own_runs=own_runs):
            found.setdefault(run.index, (verification.attempts[-1].id, run))
    return [found[index] for index in sorted(found)]


def _is_believed(
    lost: LostAttempt, run: ReplayRun, benchmark: Benchmark, report: ReplayReport | None
) -> bool:
    if lost.by_organisers:
        return True
    if report is None:
        return False
    limit = None if benchmark.replay is None else benchmark.replay.equal_seed_distance
    agreement = compare_runs(run, report.runs[run.index], limit=limit)
    return agreement is not None and agreement.agrees


def _lost_attempts(
    session: Session, verification: Verification, benchmark: Benchmark
) -> Iterator[LostAttempt]:
    codes = [
        (attempt.worker, (attempt.failure or {}).get("code")) for attempt in verification.attempts
    ]
    not_believed = {worker for worker, code in codes if code in NOT_BELIEVED}
    for attempt in verification.attempts:
        if attempt.state not in ENDED_EARLY or attempt.worker in not_believed:
            continue
        worker = None if attempt.worker is None else session.get(WorkerRow, attempt.worker)
        if worker is None:
            continue
        report = _finished_runs(session, attempt, benchmark, worker)
        if report is not None:
            yield LostAttempt(attempt.id, report, is_organisers_worker(session, worker.name))


def _finished_runs(
    session: Session, attempt: Attempt, benchmark: Benchmark, worker: WorkerRow
) -> ReplayReport | None:
    """The finished runs of an attempt, if they pass every check that a report has to pass."""
    seeds = attempt.verification.seeds
    try:
        runs = posted_runs(session, attempt, benchmark)
        report = ReplayReport(runs=runs, system=WorkerSystem(**worker.system))
        check_report(report, seeds=seeds[: len(runs)])
    except (RuleError, TypeError):  # A worker of another version may say less of its system.
        return None
    posted = [event for event in posted_events(session, attempt) if event.run < len(runs)]
    why = why_refused(session, attempt, report, posted, slack_seconds=CLOCK_SLACK_SECONDS)
    return report if runs and why is None else None

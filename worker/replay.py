"""One attempt: claim it, train its runs, report them."""

import logging

from finishline.client.transport import Conflict, FinishlineError
from finishline.rules.verification.messages import (
    ClaimRequest,
    Failure,
    Lease,
    ReplayJob,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from worker.announcer import Announcer
from worker.attempt_checks import AttemptChecks, Audited
from worker.child_process import Host
from worker.failures import ends_attempt, failure
from worker.intake import WorkerState
from worker.link import WorkerLink
from worker.outbox import Outbox
from worker.training import StopReason, train_run

log = logging.getLogger(__name__)

HEARTBEATS_PER_LEASE = 4


def replay(
    job: ReplayJob,
    *,
    server: WorkerLink,
    system: WorkerSystem,
    host: Host,
    state: WorkerState,
    checks: AttemptChecks | None = None,
) -> None:
    """Make one attempt at a verification.

    Quiet when the attempt belongs to another worker or is over: a message may come twice, and the
    server, which knows better, is asked before and during the training. `checks` surround the runs;
    without them the report has neither canaries nor an audit.
    """
    if checks is not None and not checks.may_claim():
        log.info("attempt %s is left to another worker: this one is out", job.attempt_id)
        return
    request = ClaimRequest(worker=system.worker, hardware_class=system.hardware_class)
    try:
        lease = server.claim(job.attempt_id, request)
    except Conflict as refusal:
        log.info("attempt %s is not to be made: %s", job.attempt_id, refusal)
        return
    except (FinishlineError, ValueError) as error:
        log.error("attempt %s was not claimed: %s", job.attempt_id, error)
        return
    log.info("attempt %s: %d runs of %s", job.attempt_id, len(job.trainings), job.benchmark_id)
    report = _train(job, lease, server=server, system=system, host=host, state=state, checks=checks)
    if report is not None:
        _hand_in(report, lease, server=server)


def _train(
    job: ReplayJob,
    lease: Lease,
    *,
    server: WorkerLink,
    system: WorkerSystem,
    host: Host,
    state: WorkerState,
    checks: AttemptChecks | None,
) -> ReplayReport | None:
    """Run the attempt and return its report; None if it was cancelled or its lease was lost."""

    def stop() -> StopReason | None:
        return "worker_stopped" if state.stopping else outbox.stop_reason

    heartbeat_seconds = lease.lease_seconds / HEARTBEATS_PER_LEASE
    with Outbox(
        lambda batch: server.post_events(lease, batch), heartbeat_seconds=heartbeat_seconds
    ) as outbox:
        announcer = Announcer(outbox.put)
        runs: list[ReplayRun] = []
        unfit = checks.before(job) if checks else None
        audited = checks.audit(job) if checks and unfit is None else Audited()
        for index in range(len(job.trainings) if unfit is None else 0):
            runs.append(train_run(job, index, host=host, announcer=announcer, stop=stop))
            if _is_over(runs[-1], stop()):
                break
        drift = checks.after(job) if checks and runs and stop() is None else None
    if outbox.stop_reason in ("fenced", "cancelled"):
        log.info("attempt %s was given up: %s", job.attempt_id, outbox.stop_reason)
        return None
    return ReplayReport(
        runs=runs,
        system=system,
        failure=unfit or _attempt_failure(job, runs, stop()),
        precision=audited.precision,
        work=audited.work,
        canaries=checks.canaries if checks else [],
        drift=drift,
        processes=host.processes,
    )


def _is_over(run: ReplayRun, reason: StopReason | None) -> bool:
    return reason is not None or (run.failure is not None and ends_attempt(run.failure))


def _attempt_failure(
    job: ReplayJob, runs: list[ReplayRun], reason: StopReason | None
) -> Failure | None:
    last = runs[-1].failure
    if last is not None and ends_attempt(last):
        return last
    if len(runs) == len(job.trainings):
        return None
    if reason == "time_limit":
        return failure("run_time_limit", "the attempt was stopped at the server's time limit")
    return failure("worker_stopped", "the worker was told to stop between two runs")


def _hand_in(report: ReplayReport, lease: Lease, *, server: WorkerLink) -> None:
    try:
        server.report(lease, report)
    except FinishlineError as error:
        log.warning("the report of attempt %s was not accepted: %s", lease.attempt_id, error)

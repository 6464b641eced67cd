"""One attempt: lease it, check this worker, train its runs, report them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from finishline.client.transport import Conflict, FinishlineError
from finishline.rules.measurements import Figure
from finishline.rules.verification.messages import (
    Failure,
    Lease,
    ReplayJob,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from worker.child_process import Host
from worker.entries import open_entries
from worker.failures import ends_attempt, failure
from worker.hosts import Arrival, meet
from worker.link import WorkerLink
from worker.machine.self_check import Audited, Checked, SelfCheck
from worker.outbox import Announcer, Outbox, StopReason
from worker.sandbox.order import BoxUnavailableError
from worker.settings import attempt_in_logs
from worker.state import WorkerState, end_process
from worker.training import train_run

log = logging.getLogger(__name__)

HEARTBEATS_PER_LEASE = 4
Train = Callable[..., ReplayRun]


@dataclass(frozen=True)
class Attempts:
    """Makes the attempts of one worker. `checks` make its reports' canaries and audit."""

    server: WorkerLink
    system: WorkerSystem
    host: Host
    state: WorkerState
    checks: SelfCheck | None = None

    def make(self, attempt_id: str) -> bool:
        """Lease an attempt, make it and report it. Says whether this worker got the lease."""
        try:
            lease = self.server.claim(attempt_id, self.system.worker)
        except Conflict as refusal:
            log.info("attempt %s is not to be made: %s", attempt_id, refusal)
            return False
        except (FinishlineError, ValueError) as error:
            log.error("attempt %s was not leased: %s", attempt_id, error)
            return False
        job = lease.job
        with attempt_in_logs(job):
            log.info("attempt %s: %d runs of %s", attempt_id, len(job.trainings), job.benchmark_id)
            report = self._train(lease)
            if report is not None:
                try:
                    self.server.report(lease, report)
                except FinishlineError as error:
                    log.warning("the report of attempt %s was not accepted: %s", attempt_id, error)
        return True

    def _train(self, lease: Lease) -> ReplayReport | None:
        """Run the attempt. Returns its report, None if it was cancelled or its lease was lost."""
        job = lease.job

        def stop() -> StopReason | None:
            return "worker_stopped" if self.state.stopping else outbox.stop_reason

        post = partial(self.server.post_events, lease)
        heartbeat_seconds = lease.lease_seconds / HEARTBEATS_PER_LEASE
        with Outbox(
            post, heartbeat_seconds=heartbeat_seconds, hurry=partial(post, once=True)
        ) as outbox:
            announcer = Announcer(outbox.put)
            runs: list[ReplayRun] = []
            before = after = Checked()
            if self.checks is not None:
                before = self.checks.check("before", attempt_id=job.attempt_id)
            unfit: Failure | None = None
            if before.drift is not None:
                unfit = failure("worker_drifted", f"the worker is {before.drift}")
            reduced: Figure | None = None
            if self.host.meeting is not None and unfit is None:
                met = meet(self.host, Arrival.of(self.system, self.host), stop=stop)
                if isinstance(met, Failure):
                    unfit = met
                    if stop() is None:
                        log.error(
                            "the hosts do not train together: %s. This worker ends", met.message
                        )
                        end_process()
                else:
                    reduced = met.all_reduce
            audited = self.checks.audit(job) if self.checks and unfit is None else Audited()
            if unfit is None:
                try:
                    with self._trainer(lease) as train:
                        for index in range(len(job.trainings)):
                            runs.append(train(index, announcer=announcer, stop=stop))
                            why = runs[-1].failure
                            if stop() is not None or (why is not None and ends_attempt(why)):
                                break
                except (BoxUnavailableError, FinishlineError, ValueError, OSError) as error:
                    unfit = failure("box_unavailable", str(error))
            if self.checks is not None and runs and stop() is None:
                after = self.checks.check("after", attempt_id=job.attempt_id)
        if outbox.stop_reason in ("fenced", "cancelled"):
            log.info("attempt %s was given up: %s", job.attempt_id, outbox.stop_reason)
            return None
        return ReplayReport(
            runs=runs,
            system=self.system,
            failure=unfit or _attempt_failure(job, runs, stop()),
            precision=audited.precision,
            work=audited.work,
            canaries=[each.canary for each in (before, after) if each.canary is not None],
            # Drift after the runs fails nothing: their convergence counts on any machine.
            drift=after.drift,
            processes=self.host.processes * (len(self.system.nodes) or 1),
            all_reduce=reduced,
        )

    @contextmanager
    def _trainer(self, lease: Lease) -> Iterator[Train]:
        """Return a function that makes run `index`: in its own process, code in a sandbox."""
        job = lease.job
        by_reference = partial(train_run, job, host=self.host)
        if not any(training.in_box for training in job.trainings):
            yield by_reference
            return
        with open_entries(lease, self.server, host=self.host) as entries:

            def train(index: int, **named: Any) -> ReplayRun:
                is_package = job.trainings[index].in_box
                return entries.train(index, **named) if is_package else by_reference(index, **named)

            yield train


def _attempt_failure(
    job: ReplayJob, runs: list[ReplayRun], reason: StopReason | None
) -> Failure | None:
    last = runs[-1].failure
    is_repeat = job.trainings[runs[-1].index].is_repeat
    # If only the repeated run of a code submission fails, its other runs still count.
    spoils_repeat = is_repeat and last is not None and last.kind != "infrastructure"
    if last is not None and ends_attempt(last) and not spoils_repeat:
        return last
    if len(runs) == len(job.trainings):
        return None
    if reason == "time_limit":
        return failure("run_time_limit", "the attempt was stopped at the server's time limit")
    return failure("worker_stopped", "the worker got a request to stop between two runs")

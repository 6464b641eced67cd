"""One run of a replay: follow the training process to its target, its limit or its death."""

import time
from collections.abc import Callable
from typing import Literal

from finishline.rules.scoring.measurements import QUIET_CPU_SHARE
from finishline.rules.verification.messages import ReplayJob, ReplayRun
from worker.announcer import Announcer
from worker.child_process import ChildProcess, Host, Line
from worker.failures import count_oom_kills, death_of_child, failure
from worker.run_record import RunRecord
from worker.telemetry import Telemetry

POLL_SECONDS = 0.05
EXIT_SECONDS = 5.0
StopReason = Literal["cancelled", "time_limit", "fenced", "worker_stopped"]


def train_run(
    job: ReplayJob,
    index: int,
    *,
    host: Host,
    announcer: Announcer,
    stop: Callable[[], StopReason | None],
) -> ReplayRun:
    """Train run `index` of a job in a process of its own; a failure is a value.

    `stop` is asked every 50 ms whether to give up, and why. Whatever happens, no process is left.
    """
    oom_kills = count_oom_kills()
    child = ChildProcess(job, index, host=host)
    telemetry = Telemetry(host.sensors)
    record = RunRecord(job, index, at=child.started_at, announcer=announcer, telemetry=telemetry)
    try:
        while record.status is None:
            line = child.next_line(wait_seconds=POLL_SECONDS)
            at = time.perf_counter() if line is None else line.at
            if at - child.started_at > job.run_limit_seconds:
                _exceed_limit(record, host)
            elif line is not None:
                _take_line(line, record, child, oom_kills=oom_kills)
            if record.status is None:
                _obey(stop(), record, host)
    finally:
        telemetry.stop()
        child.kill()
    return record.close(child.log_tail())


def _take_line(line: Line, record: RunRecord, child: ChildProcess, *, oom_kills: int) -> None:
    if line.text is not None:
        record.read(line.text, line.at)
        return
    exit_code = child.exit_code(wait_seconds=EXIT_SECONDS)
    killed = count_oom_kills() - oom_kills
    batch_size = record.training.settings.get("batch_size")
    record.fail(death_of_child(exit_code, oom_kills=killed, batch_size=batch_size))


def _obey(reason: StopReason | None, record: RunRecord, host: Host) -> None:
    match reason:
        case "worker_stopped":
            record.fail(failure("worker_stopped", "the worker was told to stop"))
        case "time_limit":
            _exceed_limit(record, host)
        case "cancelled" | "fenced":
            record.end("cancelled")


def _exceed_limit(record: RunRecord, host: Host) -> None:
    """Fail a run at its limit: the host's doing where it kept the processor from a training."""
    limit = record.job.run_limit_seconds
    share = record.processor_share(least_seconds=limit / 2)
    if host.device == "cpu" and share is not None and share < QUIET_CPU_SHARE:
        told = f"the run had {share:.0%} of a processor when its limit of {limit:g} s came"
        record.fail(failure("host_busy", told))
        return
    record.fail(failure("run_time_limit", f"the run was stopped after its limit of {limit:g} s"))

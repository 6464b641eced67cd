"""One run of a job: its process, and the ledger of its parent's stamps."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from finishline.rules.measurements import QUIET_CPU_SHARE
from finishline.rules.run import Clock, Phase
from finishline.rules.verification.messages import (
    BackendLatency,
    Failure,
    ReplayEvaluation,
    ReplayJob,
    ReplayRun,
    RunStatus,
)
from worker.child_process import ChildProcess, Host, Line, orders_of
from worker.failures import count_oom_kills, death_of_child, failure
from worker.machine.sensors import Telemetry
from worker.outbox import Announcer, StopReason
from worker.stopwatch import Stopwatch, clocks_disagree, is_below_band, is_reached


class RunRecorder:
    """Keeps the ledger of one run by its parent's stamps. `status` is None until the end."""

    def __init__(
        self,
        job: ReplayJob,
        index: int,
        *,
        at: float,
        announcer: Announcer,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.job = job
        self.index = index
        self.training = job.trainings[index]
        self.evaluations: list[ReplayEvaluation] = []
        self.latency: list[BackendLatency] = []
        self.status: RunStatus | None = None
        self.failure: Failure | None = None
        self._tta_seconds: float | None = None
        self._watch = Stopwatch(at)
        self._announcer = announcer
        self._telemetry = telemetry or Telemetry(None)
        self._clock = Clock(job.clock)
        self._child_span: tuple[float, float] | None = None  # clock: (start, last)
        self._cpu_span: tuple[float, float] | None = None
        self._last_at = at
        announcer.announce(index, "run_started")

    def processor_share(self, *, least_seconds: float) -> float | None:
        """Return processor seconds for each second of the clock so far, None in `least_seconds`."""
        if self._child_span is None or self._cpu_span is None:
            return None
        seconds = self._child_span[1] - self._child_span[0]
        if seconds < least_seconds:
            return None
        return (self._cpu_span[1] - self._cpu_span[0]) / seconds

    def deadline(self, spawned_at: float) -> float:
        """Return when the run must end. A busy host's slow start has its own allowance."""
        limit = self.job.run_limit_seconds
        latest = spawned_at + min(limit, START_SECONDS)
        begun = self._watch.started_at
        return limit + (latest if begun is None else min(begun, latest))

    def read(self, text: bytes, at: float) -> None:
        """Take one line of the training process, stamped on arrival."""
        try:
            event = json.loads(text)
            self._take(event, at)
        except (ValueError, KeyError, TypeError) as error:
            self.fail(failure("child_died", f"the training wrote a line that is no event: {error}"))

    def fail(self, reason: Failure) -> None:
        """End the run as failed."""
        self.end("failed")
        self.failure = reason

    def end(self, status: RunStatus) -> None:
        if self.status is None:
            self.status = status

    def close(self, log_tail: str) -> ReplayRun:
        """Return the run as it is reported. Announces its end."""
        parent_seconds, child_seconds = self._spans()
        if self.status in ("reached", "not_reached"):
            self._compare_clocks(parent_seconds, child_seconds)
        status = self.status or "failed"
        samples = self.evaluations[-1].samples if self.evaluations else 0
        cpu_seconds = self._cpu_span[1] - self._cpu_span[0] if self._cpu_span else None
        ledger = asdict(self._watch.ledger)
        self._announcer.announce(
            self.index,
            "run_finished",
            status=status,
            seconds=self._seconds(),
            ledger=ledger,
            cpu_seconds=cpu_seconds,
            failure=self.failure,
        )
        return ReplayRun(
            index=self.index,
            seed=self.training.seed,
            status=status,
            evaluations=self.evaluations,
            ledger=ledger,
            tta_seconds=self._tta_seconds if status == "reached" else None,
            parent_seconds=parent_seconds,
            child_seconds=child_seconds,
            cpu_seconds=cpu_seconds,
            failure=self.failure,
            log_tail=log_tail,
            latency=self.latency,
            telemetry=self._telemetry.summary(self._clock, samples=samples or 0),
        )

    def _take(self, event: dict[str, Any], at: float) -> None:
        match event["event"]:
            case "phase":
                self._watch.enter(Phase(event["phase"]), at)
                self._telemetry.enter(
                    Phase(event["phase"]), on_clock=self._watch.started_at is not None
                )
                self._follow_clocks(event, at)
                self._announcer.announce(
                    self.index,
                    "phase",
                    phase=event["phase"],
                    seconds=self._seconds(),
                    ledger=asdict(self._watch.ledger),
                )
            case "measurement":
                self._watch.stamp(at)
                self._follow_clocks(event, at)
                self._measure(event)
            case "latency":
                self._watch.stamp(at)
                self._follow_clocks(event, at)
                self.latency.append(TypeAdapter(BackendLatency).validate_python(event["latency"]))
            case "failure":
                self._watch.stamp(at)
                self.fail(failure(event["code"], event["message"]))
            case "end":
                self._watch.stamp(at)
                self._follow_clocks(event, at)
                self.end_at_stop()
            case unknown:
                raise ValueError(f"unknown event {unknown!r}")

    def is_over_budget(self, at: float) -> bool:
        """Say whether the clock has passed the run's budget."""
        budget = self.job.target.budget_seconds
        if budget is None or self.training.stop_at == "end" or self._watch.started_at is None:
            return False
        return self._watch.seconds(self._clock, division=self.job.division, at=at) > budget

    def end_at_stop(self) -> None:
        """End a run at the end of its training, at a fixed stop or at its budget."""
        if self.job.target.fixed_stop:
            budget = self.job.target.budget_seconds
            within = [e.seconds for e in self.evaluations if budget is None or e.seconds <= budget]
            self._tta_seconds = within[-1] if within else None
        self.end("not_reached" if self._tta_seconds is None else "reached")

    def _measure(self, event: dict[str, Any]) -> None:
        evaluation = ReplayEvaluation(
            epoch=float(event["epoch"]),
            samples=int(event["samples"]),
            seconds=self._watch.seconds(self._clock, division=self.job.division),
            quality=float(event["quality"]),
            ledger=asdict(self._watch.ledger),
        )
        self.evaluations.append(evaluation)
        self._telemetry.note_memory(
            resident=event.get("resident_peak_bytes"),
            accelerator=event.get("accelerator_peak_bytes"),
        )
        self._telemetry.note_communication(
            event.get("communication_seconds"),
            train_seconds=self._watch.ledger.train,
            how=event.get("communication_how"),
        )
        self._announcer.announce(self.index, "evaluation", **asdict(evaluation))
        qualities = [item.quality for item in self.evaluations]
        if self._tta_seconds is None and is_reached(qualities, self.job.target):
            self._tta_seconds = evaluation.seconds
        if self.training.stop_at == "end":
            return
        if self._tta_seconds is not None:
            if "latency" not in self.training.measure:  # Else its model is still to be timed.
                self.end("reached")
        elif is_below_band(qualities, self.job.control_points, self.job.target):
            self.end("below_band")

    def _seconds(self) -> float | None:
        if self._watch.started_at is None:
            return None
        return self._watch.seconds(self._clock, division=self.job.division)

    def _follow_clocks(self, event: dict[str, Any], at: float) -> None:
        if self._watch.started_at is None:
            return
        self._last_at = at
        clock, cpu = float(event["clock"]), float(event["cpu"])
        self._child_span = (self._child_span[0] if self._child_span else clock, clock)
        self._cpu_span = (self._cpu_span[0] if self._cpu_span else cpu, cpu)

    def _spans(self) -> tuple[float | None, float | None]:
        if self._watch.started_at is None or self._child_span is None:
            return None, None
        return self._last_at - self._watch.started_at, self._child_span[1] - self._child_span[0]

    def _compare_clocks(self, parent_seconds: float | None, child_seconds: float | None) -> None:
        if parent_seconds is None or child_seconds is None:
            return  # Its clock is still to start.
        if not clocks_disagree(parent_seconds, child_seconds):
            return
        self.status = "failed"
        self.failure = failure(
            "clock_mismatch",
            f"the worker measured {parent_seconds:.3f} s where the training measured"
            f" {child_seconds:.3f} s",
        )


POLL_SECONDS = 0.05
START_SECONDS = 50.0  # The server ends a run a minute after its limit.
EXIT_SECONDS = 5.0


def train_run(
    job: ReplayJob,
    index: int,
    *,
    host: Host,
    announcer: Announcer,
    stop: Callable[[], StopReason | None],
) -> ReplayRun:
    """Train run `index` of a job in its own process, and leave no process. A failure is a value.

    `stop` is asked every 50 ms whether to give up, and why.
    """
    oom_kills = count_oom_kills()
    child = ChildProcess(orders_of(job, index, host=host), host=host)
    telemetry = Telemetry(host.sensors)
    record = RunRecorder(job, index, at=child.started_at, announcer=announcer, telemetry=telemetry)
    try:
        while record.status is None:
            line = child.next_line(wait_seconds=POLL_SECONDS)
            at = time.perf_counter() if line is None else line.at
            if at > record.deadline(child.started_at):
                _exceed_limit(record, host)
            elif record.is_over_budget(at):
                record.end_at_stop()
            elif line is not None:
                _take_line(line, record, child, host=host, oom_kills=oom_kills)
            if record.status is None:
                _obey(stop(), record, host)
    finally:
        telemetry.stop()
        child.kill()
    return record.close(child.log_tail())


def _take_line(
    line: Line, record: RunRecorder, child: ChildProcess, *, host: Host, oom_kills: int
) -> None:
    if line.text is not None:
        record.read(line.text, line.at)
        return
    exit_code = child.exit_code(wait_seconds=EXIT_SECONDS)
    if host.meeting is not None:
        record.fail(failure("node_lost", "a process of the training died, or a host left it"))
        return
    killed = count_oom_kills() - oom_kills
    batch_size = record.training.settings.get("batch_size")
    record.fail(death_of_child(exit_code, oom_kills=killed, batch_size=batch_size))


def _obey(reason: StopReason | None, record: RunRecorder, host: Host) -> None:
    match reason:
        case "worker_stopped":
            record.fail(failure("worker_stopped", "the worker got a request to stop"))
        case "time_limit":
            _exceed_limit(record, host)
        case "cancelled" | "fenced":
            record.end("cancelled")


def _exceed_limit(record: RunRecorder, host: Host) -> None:
    """Fail a run at its limit: the host's doing where it kept the processor from a training."""
    limit = record.job.run_limit_seconds
    share = record.processor_share(least_seconds=limit / 2)
    if host.device == "cpu" and share is not None and share < QUIET_CPU_SHARE:
        told = f"the run had {share:.0%} of a processor when its limit of {limit:g} s came"
        record.fail(failure("host_busy", told))
        return
    record.fail(failure("run_time_limit", f"the run was stopped after its limit of {limit:g} s"))

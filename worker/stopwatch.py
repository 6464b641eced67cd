"""The stopwatch of a run: its phases, its stop at the target, and its log."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs.lines import mllog_line
from finishline.rules.logs.mllog_values import PROCESSOR_SHARE
from finishline.rules.run import Clock, Evaluation, Ledger, Phase, Run
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.verification.control_points import first_break
from finishline.rules.verification.messages import ControlPoint, TargetSpec

PREPARATION = frozenset({Phase.INIT, Phase.COMPILE, Phase.WARMUP})
RELATIVE_TOLERANCE = 0.02
ABSOLUTE_TOLERANCE_SECONDS = 0.05


class Stopwatch:
    """Seconds per phase of one run. `started_at` is the end of the preparation, None before."""

    def __init__(self, at: float) -> None:
        self.phase = Phase.INIT
        self.ledger = Ledger()
        self.started_at: float | None = None
        self._last = at

    def stamp(self, at: float) -> None:
        """Count the time since the last stamp to the present phase."""
        self.ledger = self.ledger.plus(self.phase, at - self._last)
        self._last = at

    def enter(self, phase: Phase, at: float) -> None:
        """Enter `phase`: the time belongs to it from this stamp on."""
        self.stamp(at)
        self.phase = phase
        if self.started_at is None and phase not in PREPARATION:
            self.started_at = at

    def seconds(self, clock: Clock, *, division: str, at: float | None = None) -> float:
        """Return seconds of the ledger on a clock, up to the last stamp or to a later one."""
        ledger = self.ledger if at is None else self.ledger.plus(self.phase, at - self._last)
        return clock.seconds(ledger, division=division)


def clocks_disagree(parent_seconds: float, child_seconds: float) -> bool:
    """Say whether two measurements of one span differ by more than 2 % + 50 ms."""
    allowed = RELATIVE_TOLERANCE * parent_seconds + ABSOLUTE_TOLERANCE_SECONDS
    return abs(parent_seconds - child_seconds) > allowed


def is_reached(qualities: Sequence[float], target: TargetSpec) -> bool:
    """Say whether a run may stop at its target. A fixed stop or a budget trains on to its end."""
    if not qualities or target.fixed_stop:
        return False
    goal = QualityTarget(
        metric=target.metric, value=target.value, unit="score", direction=target.direction
    )
    evaluations = [Evaluation(epoch=None, seconds=0.0, quality=quality) for quality in qualities]
    reach = ReachRule("sustained", target.evaluations_in_a_row)
    return first_evaluation_at_target(evaluations, goal, reach) is not None


def is_below_band(
    qualities: Sequence[float], points: Sequence[ControlPoint], target: TargetSpec
) -> bool:
    """Say whether the latest evaluation is worse than the band. The server judges better ones."""
    point = next((point for point in points if point.index == len(qualities)), None)
    if point is None:
        return False
    broken = first_break([qualities[-1]], [point], higher_is_better=target.direction == "higher")
    return broken is not None and broken.side == "below"


_KEYS = {
    "division": "submission_division",
    "organisation": "submission_org",
    "platform": "submission_platform",
    "seed": "seed",
    "batch_size": "global_batch_size",
}


def write_run_log(run: Run, *, benchmark: Benchmark, started_at_ms: int) -> str:
    """Write the MLLOG text of a run, which parses back to a microsecond.

    `started_at_ms` is when the process started, in milliseconds since 1970. Preparation becomes
    init, everything else but evaluation becomes train. Evaluations without a ledger have no
    eval_start. Raises RuleError if a run on another clock than MLPerf's lacks a ledger.
    """
    lines: list[bytes] = []
    start_ms = now_ms = float(started_at_ms)

    def write(
        key: str,
        value: Any = None,
        *,
        kind: str = "POINT_IN_TIME",
        at: float | None = None,
        metadata: Mapping[str, str | float] | None = None,
    ) -> None:
        """Write one line, at seconds after run_start or at the time of the line before it."""
        nonlocal now_ms
        if at is not None:
            now_ms = max(now_ms, start_ms + at * 1000)
        lines.append(mllog_line(key, value, time_ms=now_ms, kind=kind, metadata=metadata))

    write("init_start", kind="INTERVAL_START")
    write("submission_benchmark", run.benchmark or benchmark.log_names[0])
    for name, key in _KEYS.items():
        if (value := getattr(run, name)) is not None:
            write(key, value)
    for key, number in run.hyperparameters.items():
        write(key, number)
    start_ms += _preparation_seconds(run) * 1000
    write("init_stop", kind="INTERVAL_END", at=0.0)
    write("run_start", kind="INTERVAL_START", at=0.0)
    evaluated_seconds = 0.0
    for evaluation in run.evaluations:
        at, ledger = _elapsed_seconds(evaluation, run.clock), evaluation.ledger
        counts = {"epoch_num": evaluation.epoch, "samples_count": evaluation.samples}
        count = {name: number for name, number in counts.items() if number is not None}
        if ledger is not None:
            began = at - (ledger.eval - evaluated_seconds)
            evaluated_seconds = ledger.eval
            write("eval_start", kind="INTERVAL_START", at=began, metadata=count)
        write("eval_accuracy", evaluation.quality, at=at, metadata=count)
        if ledger is not None:
            write("eval_stop", kind="INTERVAL_END", at=at, metadata=count)
    if run.stop_seconds is not None:
        at, status = run.stop_seconds, {} if run.status is None else {"status": run.status}
        if run.evaluations:  # Seconds after the last evaluation are the same on any clock.
            last = run.evaluations[-1]
            at += _elapsed_seconds(last, run.clock) - last.seconds
        write("run_stop", kind="INTERVAL_END", at=at, metadata=status)
    if run.processor_share is not None:
        write(PROCESSOR_SHARE, run.processor_share)
    return b"".join(lines).decode()


def _preparation_seconds(run: Run) -> float:
    if run.preparation_seconds is not None:
        return run.preparation_seconds
    ledgers = [run.ledger, *(evaluation.ledger for evaluation in run.evaluations)]
    return next((_preparation(ledger) for ledger in ledgers if ledger is not None), 0.0)


def _preparation(ledger: Ledger) -> float:
    return ledger.init + ledger.compile + ledger.warmup


def _elapsed_seconds(evaluation: Evaluation, clock: str) -> float:
    """Return seconds since run_start by the ledger, which is right on any clock."""
    if evaluation.ledger is not None:
        return evaluation.ledger.total() - _preparation(evaluation.ledger)
    if clock == "mlperf":
        return evaluation.seconds
    raise RuleError(
        f"an evaluation on the {clock} clock without a ledger", expected="a ledger or mlperf"
    )

"""Runs as MLPerf logs, with the keys of MLPerf Training v5.1."""

from collections.abc import Mapping
from typing import Any

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.lines import MLLOG
from finishline.rules.logs.mllog_values import PROCESSOR_SHARE
from finishline.rules.run import Evaluation, Ledger, Run

_TEXT_KEYS = {
    "division": "submission_division",
    "organisation": "submission_org",
    "platform": "submission_platform",
}
_INTEGER_KEYS = {"seed": "seed", "batch_size": "global_batch_size"}


def write_run_log(run: Run, *, benchmark: Benchmark, started_at_ms: int) -> str:
    """The MLLOG text that parses back to the run, to a microsecond.

    `started_at_ms` is when the process started, in milliseconds since 1970. Preparation becomes
    init, everything else but evaluation becomes train; evaluations without a ledger have no
    eval_start. Raises RuleError if a run on another clock than MLPerf's has no ledger.
    """
    writer = _Writer(started_at_ms)
    writer.write("init_start", kind="INTERVAL_START")
    writer.write("submission_benchmark", run.benchmark or benchmark.log_names[0])
    for name, key in (_TEXT_KEYS | _INTEGER_KEYS).items():
        if (value := getattr(run, name)) is not None:
            writer.write(key, value)
    for key, number in run.hyperparameters.items():
        writer.write(key, number)
    writer.start_run(_preparation_seconds(run))
    _write_evaluations(writer, run)
    if run.stop_seconds is not None:
        status = {} if run.status is None else {"status": run.status}
        writer.write("run_stop", kind="INTERVAL_END", at=_stop_seconds(run), metadata=status)
    if run.processor_share is not None:
        writer.write(PROCESSOR_SHARE, run.processor_share)
    return writer.text()


def mllog_line(
    key: str,
    value: Any = None,
    *,
    time_ms: float,
    kind: str = "POINT_IN_TIME",
    metadata: Mapping[str, str | float] | None = None,
) -> bytes:
    """One line of a log, with its end."""
    line = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata or {},
    }
    return MLLOG.mark + b" " + orjson.dumps(line) + b"\n"


class _Writer:
    """Lines with a clock that starts at run_start and never goes back."""

    def __init__(self, started_at_ms: float) -> None:
        self._start_ms = self._now_ms = started_at_ms
        self._lines: list[bytes] = []

    def start_run(self, preparation_seconds: float) -> None:
        """Write init_stop and run_start; seconds count from here."""
        self._start_ms += preparation_seconds * 1000
        self.write("init_stop", kind="INTERVAL_END", at=0.0)
        self.write("run_start", kind="INTERVAL_START", at=0.0)

    def write(
        self,
        key: str,
        value: Any = None,
        *,
        kind: str = "POINT_IN_TIME",
        at: float | None = None,
        metadata: Mapping[str, str | float] | None = None,
    ) -> None:
        """Write one line, at seconds after run_start or at the time of the line before it."""
        if at is not None:
            self._now_ms = max(self._now_ms, self._start_ms + at * 1000)
        line = mllog_line(key, value, time_ms=self._now_ms, kind=kind, metadata=metadata)
        self._lines.append(line)

    def text(self) -> str:
        """Everything written."""
        return b"".join(self._lines).decode()


def _write_evaluations(writer: _Writer, run: Run) -> None:
    evaluated_seconds = 0.0
    for evaluation in run.evaluations:
        at = _elapsed_seconds(evaluation, run.clock)
        count = {
            name: number
            for name, number in (
                ("epoch_num", evaluation.epoch),
                ("samples_count", evaluation.samples),
            )
            if number is not None
        }
        if evaluation.ledger is None:
            writer.write("eval_accuracy", evaluation.quality, at=at, metadata=count)
            continue
        began = at - (evaluation.ledger.eval - evaluated_seconds)
        evaluated_seconds = evaluation.ledger.eval
        writer.write("eval_start", kind="INTERVAL_START", at=began, metadata=count)
        writer.write("eval_accuracy", evaluation.quality, at=at, metadata=count)
        writer.write("eval_stop", kind="INTERVAL_END", at=at, metadata=count)


def _preparation_seconds(run: Run) -> float:
    if run.preparation_seconds is not None:
        return run.preparation_seconds
    ledgers = [run.ledger, *(evaluation.ledger for evaluation in run.evaluations)]
    return next((_preparation(ledger) for ledger in ledgers if ledger is not None), 0.0)


def _preparation(ledger: Ledger) -> float:
    return ledger.init + ledger.compile + ledger.warmup


def _elapsed_seconds(evaluation: Evaluation, clock: str) -> float:
    """Seconds since run_start by the ledger, which is right on any clock."""
    if evaluation.ledger is not None:
        return evaluation.ledger.total() - _preparation(evaluation.ledger)
    if clock == "mlperf":
        return evaluation.seconds
    raise RuleError(
        f"an evaluation on the {clock} clock without a ledger", expected="a ledger or mlperf"
    )


def _stop_seconds(run: Run) -> float:
    """Seconds since run_start when the run stopped."""
    stop_seconds = run.stop_seconds or 0.0
    if run.evaluations:
        last = run.evaluations[-1]
        return _elapsed_seconds(last, run.clock) + stop_seconds - last.seconds
    return stop_seconds

"""Runs as MLPerf logs, with the keys of MLPerf Training v5.1."""

from collections.abc import Mapping
from typing import Any

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.lines import MLLOG
from finishline.rules.logs.mllog_values import PROCESSOR_SHARE
from finishline.rules.run import Evaluation, Ledger, Run

_KEYS = {
    "division": "submission_division",
    "organisation": "submission_org",
    "platform": "submission_platform",
    "seed": "seed",
    "batch_size": "global_batch_size",
}


def write_run_log(run: Run, *, benchmark: Benchmark, started_at_ms: int) -> str:
    """The MLLOG text that parses back to the run, to a microsecond.

    `started_at_ms` is when the process started, in milliseconds since 1970. Preparation becomes
    init, everything else but evaluation becomes train; evaluations without a ledger have no
    eval_start. Raises RuleError if a run on another clock than MLPerf's has no ledger.
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

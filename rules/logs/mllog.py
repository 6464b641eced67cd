"""MLPerf Training logs (`:::MLLOG {json}` lines) as runs.

Source: MLPerf training_rules.adoc, "Logging"; the required keys of the v5.1 compliance checker.
"""

from rules.benchmark import Benchmark
from rules.errors import LogFormatError
from rules.logs.mllog_evaluation import EvaluationTime, read_measurement, read_status
from rules.logs.mllog_lines import MllogRecord, is_number, read_mllog
from rules.logs.mllog_settings import SETTING_KEYS, LogSettings
from rules.logs.mllog_write import write_run_log
from rules.run import Evaluation, Ledger, Run

__all__ = ["parse_mllog", "write_run_log"]

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
MOMENT_KEYS = frozenset(
    {"init_start", "init_stop", "run_start", "eval_start", "eval_stop", "run_stop"}
)


def parse_mllog(content: bytes, *, name: str, benchmark: Benchmark) -> Run:
    """The run in an MLPerf log, its seconds counted from run_start.

    Lines of several ranks may be interleaved; the times of the lines that count (init_stop,
    run_start, evaluations, run_stop) may not decrease. A log without run_stop has status and
    stop_seconds None. Evaluations have a ledger if the log has eval_start lines. Raises
    LogFormatError naming file, line, field and what was expected.
    """
    reader = _RunReader(name, benchmark)
    counted = QUALITY_KEYS | MOMENT_KEYS | SETTING_KEYS
    for record in read_mllog(content, file=name, counted_keys=counted):
        reader.read(record)
    return reader.run()


class _RunReader:
    """What a log has said up to one line."""

    def __init__(self, file: str, benchmark: Benchmark) -> None:
        self._file = file
        self._settings = LogSettings(benchmark, file=file)
        self._init_start_ms: float | None = None
        self._start: MllogRecord | None = None
        self._stop: MllogRecord | None = None
        self._last: MllogRecord | None = None
        self._quality_key: str | None = None
        self._evaluations: list[Evaluation] = []
        self._evaluating = EvaluationTime()

    def read(self, record: MllogRecord) -> None:
        """Take one line in. Raises LogFormatError if it contradicts the lines before it."""
        key = record.key
        if key in SETTING_KEYS:
            self._settings.read(record)
        elif key in QUALITY_KEYS:
            self._read_evaluation(record)
        elif key in MOMENT_KEYS:
            self._read_moment(record)
        elif record.point_in_time and self._start is None and is_number(record.value):
            self._settings.read_hyperparameter(record)

    def run(self) -> Run:
        """The run, after the last line. Raises LogFormatError if the log has no beginning."""
        if self._start is None or self._last is None:
            raise LogFormatError(
                "no run_start",
                file=self._file,
                field="run_start",
                expected="MLLOG lines with exactly one run_start",
            )
        self._settings.refuse_nameless()
        texts, integers = self._settings.texts, self._settings.integers
        told = self._evaluating.told or not self._evaluations
        return Run(
            name=self._file,
            clock="mlperf",
            evaluations=tuple(self._evaluations),
            status=read_status(self._stop, file=self._file) if self._stop else None,
            stop_seconds=_seconds(self._start, self._stop) if self._stop else None,
            seed=integers.get("seed"),
            batch_size=integers.get("global_batch_size"),
            benchmark=texts["submission_benchmark"],
            division=texts.get("submission_division"),
            organisation=texts.get("submission_org"),
            platform=texts.get("submission_platform"),
            hyperparameters=self._settings.hyperparameters,
            ledger=self._ledger(self._start, self._last) if told else None,
        )

    def _read_moment(self, record: MllogRecord) -> None:
        if record.key == "init_start":
            self._read_init_start(record)
        elif record.key == "run_start":
            self._read_run_start(record)
        elif record.key == "run_stop":
            self._read_run_stop(record)
        elif record.key == "init_stop":
            self._advance(record)
        elif self._start is not None and self._stop is None:
            self._advance(record)
            if record.key == "eval_start":
                self._evaluating.start(record.time_ms)
            else:
                self._evaluating.stop(record.time_ms)

    def _read_init_start(self, record: MllogRecord) -> None:
        """Every rank logs its own, in any order; the first by time counts."""
        if self._start is not None:
            raise self._fail(record, "init_start after run_start", expected="init_start first")
        first = self._init_start_ms
        self._init_start_ms = record.time_ms if first is None else min(first, record.time_ms)

    def _read_run_start(self, record: MllogRecord) -> None:
        if self._start is not None:
            raise self._fail(record, "a second run_start", expected="exactly one run_start")
        if self._init_start_ms is not None and self._init_start_ms > record.time_ms:
            raise self._fail(
                record,
                "run_start earlier than init_start",
                field="time_ms",
                expected="times that do not decrease",
            )
        self._advance(record)
        self._start = record

    def _read_run_stop(self, record: MllogRecord) -> None:
        if self._stop is not None:
            raise self._fail(record, "a second run_stop", expected="exactly one run_stop")
        if self._start is None:
            raise self._fail(record, "run_stop before run_start", expected="run_start first")
        self._advance(record)
        self._stop = record

    def _read_evaluation(self, record: MllogRecord) -> None:
        if self._start is None or self._stop is not None:
            where = "before run_start" if self._start is None else "after run_stop"
            raise self._fail(record, f"{record.key} {where}", expected="evaluations within the run")
        if self._quality_key not in (None, record.key):
            raise self._fail(
                record, f"{record.key} after {self._quality_key}", expected="one of the two"
            )
        self._quality_key = record.key
        self._advance(record)
        self._evaluating.measure(record.time_ms)
        epoch, samples, quality = read_measurement(record, file=self._file)
        self._evaluations.append(
            Evaluation(
                epoch=epoch,
                seconds=_seconds(self._start, record),
                quality=quality,
                samples=samples,
                ledger=self._ledger(self._start, record) if self._evaluating.told else None,
                line=record.line,
            )
        )

    def _advance(self, record: MllogRecord) -> None:
        last = self._last
        if last is not None and record.time_ms < last.time_ms:
            raise self._fail(
                record,
                f"{record.key} at {record.time_ms} ms after {last.key} at {last.time_ms} ms",
                field="time_ms",
                expected="times that do not decrease",
            )
        self._last = record

    def _ledger(self, start: MllogRecord, end: MllogRecord) -> Ledger:
        """Seconds per phase up to a line; what is neither preparation nor evaluation is train."""
        eval_seconds = self._evaluating.total_ms(end.time_ms) / 1000
        first = start.time_ms if self._init_start_ms is None else self._init_start_ms
        return Ledger(
            init=(start.time_ms - first) / 1000,
            train=_seconds(start, end) - eval_seconds,
            eval=eval_seconds,
        )

    def _fail(
        self, record: MllogRecord, message: str, *, expected: str, field: str | None = None
    ) -> LogFormatError:
        return LogFormatError(
            message,
            file=self._file,
            line=record.line,
            field=field or record.key,
            expected=expected,
        )


def _seconds(start: MllogRecord, end: MllogRecord) -> float:
    return (end.time_ms - start.time_ms) / 1000

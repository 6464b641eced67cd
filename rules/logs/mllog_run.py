"""The run that the lines of an MLPerf log add up to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules.errors import LogFormatError
from rules.logs.blocks import Block
from rules.logs.mllog_evaluation import EvaluationTime, read_measurement, read_status
from rules.logs.mllog_lines import MllogRecord, Report, is_number, read_record
from rules.logs.mllog_settings import SETTING_KEYS, LogSettings
from rules.logs.several_metrics import SeveralMetrics
from rules.quality import QualityTarget
from rules.run import Evaluation, Ledger, Run

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
RUN_KEYS = frozenset({"run_start", "run_stop"})
PHASE_KEYS = frozenset({"init_start", "init_stop", "eval_start", "eval_stop"})
COUNTED_KEYS = QUALITY_KEYS | RUN_KEYS | SETTING_KEYS | PHASE_KEYS
FIGURE_KEYS = COUNTED_KEYS - PHASE_KEYS - {"submission_platform"}


@dataclass(frozen=True)
class Reading:
    """What was read from one log: its run, and every seed it names.

    `trusted` is whether the log tells without contradiction when its run started and stopped.
    `evaluations` counts those it has, which may be more than were read. `started_ms` is the time of
    its run_start, in milliseconds since 1970.
    """

    run: Run
    seeds: tuple[int, ...]
    trusted: bool
    evaluations: int
    started_ms: float | None = None


class RunReader:
    """What a log has said up to one line; what contradicts it is reported.

    Where the reporting does not raise, the line that contradicts is left out and reading goes on.
    `told` is whether the lines of the phases are read too, so that there is a ledger, and whether
    evaluations are to know their line. `target` tells whether an evaluation is several metrics.
    """

    def __init__(
        self,
        file: str,
        allowed: Mapping[str, Sequence[str]],
        *,
        told: bool,
        report: Report,
        target: QualityTarget | None = None,
    ) -> None:
        self._file = file
        self._told = told
        self._report = report
        self._settings = LogSettings(allowed, file=file, report=report)
        self._init_start_ms: float | None = None
        self._start: MllogRecord | None = None
        self._stop: MllogRecord | None = None
        self._last: MllogRecord | None = None
        self._quality_key: str | None = None
        self._evaluations: list[Evaluation] = []
        self._several = (
            SeveralMetrics(target.logged_names, file=file, report=report)
            if target is not None and target.also
            else None
        )
        self._offline = target is not None and target.offline
        self._evaluating = EvaluationTime()
        self._contradicted = False
        self._aside: tuple[re.Match[bytes], Block] | None = None
        self._passed_over = 0

    def set_aside(self, line: re.Match[bytes], block: Block) -> bool:
        """Keep the line of an evaluation within the run until it is known to be the last."""
        if self._start is None or self._stop is not None:
            return False
        self._passed_over += 1
        self._aside = (line, block)
        return True

    def _read_aside(self) -> None:
        if self._aside is None:
            return
        (line, block), self._aside = self._aside, None
        self._passed_over -= 1
        text, offset = line[1], line.start()
        try:
            record = read_record(text, block, offset, counted_keys=COUNTED_KEYS)
        except LogFormatError as error:
            error.file, error.line = self._file, block.line_at(offset)
            self._report(error)
        else:
            self._read_evaluation(record)

    def read(self, record: MllogRecord) -> None:
        """Take one line in."""
        key = record.key
        if key in QUALITY_KEYS:
            self._read_evaluation(record)
        elif key in SETTING_KEYS:
            self._settings.read(record)
        elif key == "run_start":
            self._read_run_start(record)
        elif key == "run_stop":
            self._read_run_stop(record)
        elif key in PHASE_KEYS:
            self._read_phase(record)
        elif record.point_in_time and self._start is None and is_number(record.value):
            self._settings.read_hyperparameter(record)

    def reading(self) -> Reading:
        """The run, after the last line."""
        self._read_aside()
        if self._start is None:
            self._report(
                LogFormatError(
                    "no run_start",
                    file=self._file,
                    field="run_start",
                    expected="MLLOG lines with exactly one run_start",
                    code="no_run_start",
                )
            )
        self._settings.report_nameless()
        if self._several is not None:
            self._evaluations += self._several.evaluations()
        run = self._run()
        trusted = self._start is not None and not self._contradicted
        return Reading(
            run=run,
            seeds=tuple(self._settings.seeds),
            trusted=trusted,
            evaluations=len(self._evaluations) + self._passed_over,
            started_ms=self._start.time_ms if self._start else None,
        )

    def _run(self) -> Run:
        texts, integers = self._settings.texts, self._settings.integers
        start, stop = self._start, self._stop
        return Run(
            name=self._file,
            clock="mlperf",
            evaluations=tuple(self._evaluations),
            status=self._status(stop) if stop else None,
            stop_seconds=_seconds(start, stop) if start and stop else None,
            seed=integers.get("seed"),
            batch_size=integers.get("global_batch_size"),
            benchmark=texts.get("submission_benchmark"),
            division=texts.get("submission_division"),
            organisation=texts.get("submission_org"),
            platform=texts.get("submission_platform"),
            hyperparameters=self._settings.hyperparameters,
            ledger=self._whole_ledger(),
        )

    def _status(self, stop: MllogRecord) -> str | None:
        try:
            return read_status(stop, file=self._file)
        except LogFormatError as error:
            self._contradicted = True
            self._report(error)
            return None

    def _whole_ledger(self) -> Ledger | None:
        if not self._told or self._start is None or self._last is None:
            return None
        if self._evaluations and not self._evaluating.told:
            return None
        return self._ledger(self._start, self._last)

    def _read_phase(self, record: MllogRecord) -> None:
        if record.key == "init_start":
            self._read_init_start(record)
        elif record.key == "init_stop":
            self._advance(record)
        elif self._offline:
            return  # Quality is measured after the run, off its clock.
        elif self._start is not None and self._stop is None and self._advance(record):
            if record.key == "eval_start":
                self._evaluating.start(record.time_ms)
            else:
                self._evaluating.stop(record.time_ms)

    def _read_init_start(self, record: MllogRecord) -> None:
        """Every rank logs its own, in any order; the first by time counts."""
        if self._start is not None:
            self._refuse(record, "init_start after run_start", expected="init_start first")
            return
        first = self._init_start_ms
        self._init_start_ms = record.time_ms if first is None else min(first, record.time_ms)

    def _read_run_start(self, record: MllogRecord) -> None:
        if self._start is not None:
            self._contradicted = True
            self._refuse(record, "a second run_start", expected="exactly one run_start")
            return
        if self._init_start_ms is not None and self._init_start_ms > record.time_ms:
            self._refuse(
                record,
                "run_start earlier than init_start",
                field="time_ms",
                expected="times that do not decrease",
            )
        self._advance(record)
        self._start = record

    def _read_run_stop(self, record: MllogRecord) -> None:
        if self._stop is not None:
            self._contradicted = True
            self._refuse(record, "a second run_stop", expected="exactly one run_stop")
        elif self._start is None:
            self._contradicted = True
            self._refuse(record, "run_stop before run_start", expected="run_start first")
        else:
            self._read_aside()
            self._advance(record)
            self._contradicted |= record.time_ms < self._start.time_ms
            self._stop = record

    def _read_evaluation(self, record: MllogRecord) -> None:
        start = self._start
        if start is None or self._stop is not None:
            where = "before run_start" if start is None else "after run_stop"
            expected = "evaluations within the run"
            self._refuse(record, f"{record.key} {where}", expected=expected)
            return
        if self._quality_key not in (None, record.key):
            message = f"{record.key} after {self._quality_key}"
            self._refuse(record, message, expected="one of the two")
            return
        self._quality_key = record.key
        if self._several is not None:
            if not self._offline:
                self._advance(record)
            self._several.read(record, seconds=_seconds(start, record))
            return
        if self._last is None or record.time_ms >= self._last.time_ms:
            self._last = record
        else:
            self._advance(record)
        try:
            epoch, samples, quality = read_measurement(record, file=self._file)
        except LogFormatError as error:
            self._report(error)
            return
        if self._told:
            self._evaluating.measure(record.time_ms)
        self._evaluations.append(
            Evaluation(
                epoch,
                _seconds(start, record),
                quality,
                samples,
                self._ledger(start, record) if self._evaluating.told else None,
                record.line() if self._told else None,
            )
        )

    def _advance(self, record: MllogRecord) -> bool:
        """Whether a line that counts is no earlier than the one before it; report it if it is."""
        last = self._last
        if last is not None and record.time_ms < last.time_ms:
            self._refuse(
                record,
                f"{record.key} at {record.time_ms} ms after {last.key} at {last.time_ms} ms",
                field="time_ms",
                expected="times that do not decrease",
            )
            return False
        self._last = record
        return True

    def _ledger(self, start: MllogRecord, end: MllogRecord) -> Ledger:
        """Seconds per phase up to a line; what is neither preparation nor evaluation is train."""
        eval_seconds = self._evaluating.total_ms(end.time_ms) / 1000
        first = start.time_ms if self._init_start_ms is None else self._init_start_ms
        return Ledger(
            init=(start.time_ms - first) / 1000,
            train=_seconds(start, end) - eval_seconds,
            eval=eval_seconds,
        )

    def _refuse(
        self, record: MllogRecord, message: str, *, expected: str, field: str | None = None
    ) -> None:
        self._report(
            LogFormatError(
                message,
                file=self._file,
                line=record.line(),
                field=field or record.key,
                expected=expected,
                code="times_decrease" if field else "lines_out_of_order",
            )
        )


def _seconds(start: MllogRecord, end: MllogRecord) -> float:
    return (end.time_ms - start.time_ms) / 1000

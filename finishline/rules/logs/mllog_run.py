"""The run that the lines of an MLPerf log add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_clock import RunClock
from finishline.rules.logs.mllog_evaluation import (
    Report,
    SeveralMetrics,
    first_quality,
    read_measurement,
    read_status,
)
from finishline.rules.logs.mllog_record import MllogRecord, is_number
from finishline.rules.logs.mllog_settings import PROCESSOR_SHARE, SETTING_KEYS, LogSettings
from finishline.rules.run import Evaluation, Ledger, Run

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
RUN_KEYS = frozenset({"run_start", "run_stop"})
PHASE_KEYS = frozenset({"init_start", "init_stop", "eval_start", "eval_stop"})
# Samples that a run of BERT trained on, where its epoch_num counts something else. Other logs have
# the size of the data set there. Source: training_rules.adoc, "Benchmark specific rules".
TRAINED, TRAINED_COUNTED = "train_samples", "bert"
COUNTED_KEYS = QUALITY_KEYS | RUN_KEYS | SETTING_KEYS | PHASE_KEYS


@dataclass(frozen=True)
class Reading:
    """Contents of one log.

    `trusted` is whether the log tells without contradiction when its run started and stopped.
    `version` is the round of a format that one round has: "0.5" or "0.6". `placeholder` is whether
    a sentence stands in place of a log.
    """

    run: Run
    trusted: bool = False
    version: str | None = None
    placeholder: bool = False


class RunReader:
    """State of a log up to one line. Contradictions are reported.

    Where the reporting does not raise, the line that contradicts is left out and reading goes on.
    Oddities of published logs that no figure rests on go to `odd`. `target` tells whether an
    evaluation is several metrics, and whether it is made once the run is over. Without it, a line
    may have several qualities, the main one first. `first_epoch` is that of v0.5.
    """

    def __init__(
        self,
        file: str,
        allowed: Mapping[str, Sequence[str]],
        *,
        report: Report,
        odd: Report,
        target: QualityTarget | None = None,
        first_epoch: int | None = None,
    ) -> None:
        self._file = file
        self._report = report
        self._odd = odd
        self._first_epoch = first_epoch
        self._settings = LogSettings(allowed, file=file, report=report, odd=odd)
        self._clock = RunClock()
        self._start: MllogRecord | None = None
        self._stop: MllogRecord | None = None
        self._quality_key: str | None = None
        self._evaluations: list[Evaluation] = []
        self._several = (
            SeveralMetrics(target.logged_names, file=file, report=report, steps=target.steps)
            if target is not None and target.logged_names
            else None
        )
        self._offline = target is not None and target.offline
        self._tables = target is None
        self._trained: float | None = None
        self._contradicted = False

    def read(self, record: MllogRecord) -> None:
        """Take one line in."""
        key = record.key
        if key in QUALITY_KEYS:
            self._read_evaluation(record)
        elif key in PHASE_KEYS:
            self._read_phase(record)
        elif key in SETTING_KEYS:
            self._settings.read(record)
        elif key == "run_start":
            self._read_run_start(record)
        elif key == "run_stop":
            self._read_run_stop(record)
        elif key == TRAINED:
            if self._start is not None and is_number(record.value) and record.value > 0:
                self._trained = float(record.value)
        elif key == PROCESSOR_SHARE:
            self._settings.read_processor_share(record)
        elif record.point_in_time and self._start is None and is_number(record.value):
            self._settings.read_hyperparameter(record)

    def reading(self, version: str | None) -> Reading:
        """The run, after the last line."""
        if self._start is None:
            begun = "submission_benchmark" in self._settings.texts
            (self._odd if begun else self._report)(
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
            batch_size = self._settings.integers.get("global_batch_size")
            self._evaluations += self._several.evaluations(batch_size)
        if self._trained and self._settings.texts.get("submission_benchmark") == TRAINED_COUNTED:
            self._evaluations[-1:] = [
                replace(last, epoch=self._trained) for last in self._evaluations[-1:]
            ]
        return Reading(
            run=self._run(),
            trusted=self._start is not None and not self._contradicted,
            version=version,
        )

    def _run(self) -> Run:
        texts, integers = self._settings.texts, self._settings.integers
        start, stop = self._start, self._stop
        return Run(
            name=self._file,
            clock="mlperf",
            evaluations=tuple(self._evaluations),
            status=self._status(stop) if stop else None,
            stop_seconds=_seconds(start, stop.time_ms) if start and stop else None,
            seed=integers.get("seed"),
            seeds=tuple(self._settings.seeds),
            batch_size=integers.get("global_batch_size"),
            benchmark=texts.get("submission_benchmark"),
            division=texts.get("submission_division"),
            organisation=texts.get("submission_org"),
            platform=texts.get("submission_platform"),
            hyperparameters=self._settings.hyperparameters,
            ledger=self._whole_ledger(),
            preparation_seconds=self._clock.preparation_seconds,
            processor_share=self._settings.processor_share,
            start_ms=start.time_ms if start else None,
            start_line=start.line() if start else None,
        )

    def _status(self, stop: MllogRecord) -> str | None:
        try:
            return read_status(stop, file=self._file)
        except LogFormatError as error:
            self._contradicted = True
            self._report(error)
            return None

    def _whole_ledger(self) -> Ledger | None:
        if self._start is None or self._clock.last is None:
            return None
        if self._evaluations and not self._clock.evaluating.told:
            return None
        return self._clock.ledger(self._clock.last[1])

    def _read_phase(self, record: MllogRecord) -> None:
        if record.key == "init_start" and self._start is not None:
            self._refuse(record, "init_start after run_start", expected="init_start first")
        elif record.key == "init_start":
            self._clock.init_start(record.time_ms)
        elif record.key == "init_stop":
            self._report_time(record, self._clock.phase(record), self._odd)
        elif self._offline or self._start is None or self._stop is not None:
            return  # Offline, quality is measured after the run, off its clock.
        elif (fault := self._clock.phase(record)) is not None:
            self._report_time(record, fault, self._odd)
        elif record.key == "eval_start":
            self._clock.evaluating.start(record.time_ms)
        else:
            self._clock.evaluating.stop(record.time_ms)

    def _read_run_start(self, record: MllogRecord) -> None:
        if self._start is not None:
            self._contradicted = True
            self._refuse(record, "a second run_start", expected="exactly one run_start")
            return
        self._report_time(record, self._clock.run_start(record), self._odd)
        self._start = record

    def _read_run_stop(self, record: MllogRecord) -> None:
        if self._stop is not None:
            self._contradicted = True
            self._refuse(record, "a second run_stop", expected="exactly one run_stop")
        elif self._start is None:
            self._contradicted = True
            self._refuse(record, "run_stop before run_start", expected="run_start first")
        else:
            self._advance(record, self._odd if self._clock.is_rounded(record) else self._report)
            self._contradicted |= record.time_ms < self._start.time_ms
            self._stop = record

    def _read_evaluation(self, record: MllogRecord) -> None:
        start = self._start
        if start is None or self._stop is not None:
            where = "before run_start" if start is None else "after run_stop"
            expected = "evaluations within the run"
            self._refuse(record, f"{record.key} {where}", expected=expected, report=self._odd)
            return
        if self._quality_key not in (None, record.key):
            message = f"{record.key} after {self._quality_key}"
            self._refuse(record, message, expected="one of the two")
            return
        self._quality_key = record.key
        # Offline its time is when it was measured, after the run.
        if not self._offline and not self._advance(record, self._report):
            return
        seconds = _seconds(start, record.time_ms)
        if self._several is not None:
            self._several.read(record, seconds=seconds)
            return
        others = None
        if self._tables and type(record.value) is dict:
            record, others = first_quality(record)
        try:
            epoch, samples, quality = read_measurement(
                record, file=self._file, first_epoch=self._first_epoch
            )
        except LogFormatError as error:
            self._report(error)
            return
        evaluating = self._clock.evaluating
        evaluating.measure(record.time_ms)
        ledger = self._clock.ledger(record.time_ms) if evaluating.told else None
        self._evaluations.append(
            Evaluation(epoch, seconds, quality, samples, ledger, record.line(), others)
        )

    def _advance(self, record: MllogRecord, report: Report) -> bool:
        """Whether a line that a figure rests on goes on in time.

        One that is behind the line of a phase alone is odd: ranks wrote them in disorder.
        """
        fault = self._clock.fault(record)
        if fault is not None:
            figure_fault = self._clock.fault(record, figure=True)
            self._report_time(record, figure_fault or fault, report if figure_fault else self._odd)
            if figure_fault:
                return False
        self._clock.advance(record)
        return True

    def _report_time(self, record: MllogRecord, fault: str | None, report: Report) -> None:
        if fault is not None:
            expected = "times that do not decrease"
            self._refuse(record, fault, field="time_ms", expected=expected, report=report)

    def _refuse(
        self,
        record: MllogRecord,
        message: str,
        *,
        expected: str,
        field: str | None = None,
        report: Report | None = None,
    ) -> None:
        (report or self._report)(
            LogFormatError(
                message,
                file=self._file,
                line=record.line(),
                field=field or record.key,
                expected=expected,
                code="times_decrease" if field else "lines_out_of_order",
            )
        )


def _seconds(start: MllogRecord, end_ms: float) -> float:
    return (end_ms - start.time_ms) / 1000

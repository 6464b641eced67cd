"""The run that the lines of an MLPerf log add up to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.quality import LoggedQuality, QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_clock import RunClock
from finishline.rules.logs.mllog_evaluation import (
    SeveralMetrics,
    first_quality,
    read_measurement,
    read_status,
)
from finishline.rules.logs.mllog_lines import Report
from finishline.rules.logs.mllog_record import (
    MllogItem,
    MllogRecord,
    WholeEvaluation,
    is_number,
    read_record,
)
from finishline.rules.logs.mllog_settings import PROCESSOR_SHARE, SETTING_KEYS, LogSettings
from finishline.rules.logs.text import Block
from finishline.rules.scoring.run import Evaluation, Ledger, Run

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
RUN_KEYS = frozenset({"run_start", "run_stop"})
PHASE_KEYS = frozenset({"init_start", "init_stop", "eval_start", "eval_stop"})
COUNTED_KEYS = QUALITY_KEYS | RUN_KEYS | SETTING_KEYS | PHASE_KEYS
FIGURE_KEYS = COUNTED_KEYS - PHASE_KEYS - {"submission_platform"}


@dataclass(frozen=True)
class Reading:
    """Contents of one log: its run, and every seed it names.

    `trusted` is whether the log tells without contradiction when its run started and stopped.
    `evaluations` counts those it has, which may be more than were read. `started_ms` is the time of
    its run_start, in milliseconds since 1970. `before_last` counts the epochs or samples of the
    evaluation before the last one, where that alone was read; see `RunReader`.
    """

    run: Run
    seeds: tuple[int, ...]
    trusted: bool
    evaluations: int
    started_ms: float | None = None
    before_last: float | None = None


class RunReader:
    """State of a log up to one line; contradictions are reported.

    Where the reporting does not raise, the line that contradicts is left out and reading goes on.
    Oddities of published logs that no figure rests on go to `odd`, where there is one. `told` is
    whether the lines of the phases are read too, so that there is a ledger, and whether evaluations
    are to know their line. `target` tells whether an evaluation is several metrics, and whether it
    is made once the run is over; without it, a line may have several qualities. `counts` finds the
    epochs or samples in the line of an evaluation that is passed over.
    """

    def __init__(
        self,
        file: str,
        allowed: Mapping[str, Sequence[str]],
        *,
        told: bool,
        report: Report,
        odd: Report | None = None,
        target: QualityTarget | LoggedQuality | None = None,
        counts: re.Pattern[bytes] | None = None,
    ) -> None:
        self._file = file
        self._told = told
        self._report = report
        self._odd = odd or report
        self._settings = LogSettings(allowed, file=file, report=report, odd=self._odd)
        self._clock = RunClock()
        self._start: MllogRecord | None = None
        self._stop: MllogRecord | None = None
        self._quality_key: str | None = None
        self._evaluations: list[Evaluation] = []
        self._several = (
            SeveralMetrics(
                target.logged_names,
                file=file,
                report=report,
                steps=isinstance(target, LoggedQuality) and target.steps,
            )
            if target is not None and target.logged_names
            else None
        )
        self._offline = target is not None and target.offline
        self._tables = target is None
        self._contradicted = False
        self._counts = counts
        self._aside: tuple[re.Match[bytes], Block] | None = None
        self._before: tuple[re.Match[bytes], Block] | None = None
        self._passed_over = 0
        self._before_last: float | None = None

    def set_aside(self, line: re.Match[bytes], block: Block) -> bool:
        """Keep the line of an evaluation within the run until it is known to be the last."""
        if self._start is None or self._stop is not None:
            return False
        self._passed_over += 1
        self._before, self._aside = self._aside, (line, block)
        return True

    def _read_aside(self) -> None:
        if self._aside is None:
            return
        if self._before is not None and self._counts is not None:
            count = self._counts.search(self._before[0][1])
            self._before_last = float(count[1]) if count is not None else None
        (line, block), self._before, self._aside = self._aside, None, None
        self._passed_over -= 1
        offset = line.start()
        try:
            record = read_record(line[1], block, offset, counted_keys=COUNTED_KEYS)
        except LogFormatError as error:
            error.file, error.line = self._file, block.line_at(offset)
            self._report(error)
        else:
            self._read_evaluation(record)

    def read(self, record: MllogItem) -> None:
        """Take one line in, or the three of a whole evaluation."""
        if type(record) is WholeEvaluation:
            self._read_whole(record)
            return
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
        elif key == PROCESSOR_SHARE:
            self._settings.read_processor_share(record)
        elif record.point_in_time and self._start is None and is_number(record.value):
            self._settings.read_hyperparameter(record)

    def reading(self) -> Reading:
        """The run, after the last line."""
        self._read_aside()
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
            self._evaluations += self._several.evaluations()
        run = self._run()
        trusted = self._start is not None and not self._contradicted
        return Reading(
            run=run,
            seeds=tuple(self._settings.seeds),
            trusted=trusted,
            evaluations=len(self._evaluations) + self._passed_over,
            started_ms=self._start.time_ms if self._start else None,
            before_last=self._before_last,
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
            batch_size=integers.get("global_batch_size"),
            benchmark=texts.get("submission_benchmark"),
            division=texts.get("submission_division"),
            organisation=texts.get("submission_org"),
            platform=texts.get("submission_platform"),
            hyperparameters=self._settings.hyperparameters,
            ledger=self._whole_ledger(),
            preparation_seconds=self._clock.preparation_seconds if self._told else None,
            processor_share=self._settings.processor_share,
        )

    def _status(self, stop: MllogRecord) -> str | None:
        try:
            return read_status(stop, file=self._file)
        except LogFormatError as error:
            self._contradicted = True
            self._report(error)
            return None

    def _whole_ledger(self) -> Ledger | None:
        if not self._told or self._start is None or self._clock.last is None:
            return None
        if self._evaluations and not self._clock.evaluating.told:
            return None
        return self._clock.ledger(self._clock.last[1])

    def _read_phase(self, record: MllogRecord) -> None:
        if record.key == "init_start":
            self._read_init_start(record)
        elif record.key == "init_stop":
            self._check_time(record, self._clock.phase(record), report=self._odd)
        elif self._offline or self._start is None or self._stop is not None:
            return  # Offline, quality is measured after the run, off its clock.
        elif self._check_time(record, self._clock.phase(record), report=self._odd):
            if record.key == "eval_start":
                self._clock.evaluating.start(record.time_ms)
            else:
                self._clock.evaluating.stop(record.time_ms)

    def _read_init_start(self, record: MllogRecord) -> None:
        if self._start is not None:
            self._refuse(record, "init_start after run_start", expected="init_start first")
            return
        self._clock.init_start(record.time_ms)

    def _read_run_start(self, record: MllogRecord) -> None:
        if self._start is not None:
            self._contradicted = True
            self._refuse(record, "a second run_start", expected="exactly one run_start")
            return
        self._check_time(record, self._clock.run_start(record), report=self._odd)
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
            lenient = self._odd if self._clock.is_rounded(record) else None
            self._check_time(record, self._clock.advance(record), report=lenient)
            self._contradicted |= record.time_ms < self._start.time_ms
            self._stop = record

    def _read_evaluation(self, record: MllogRecord) -> None:
        start = self._start
        if start is None or self._stop is not None:
            where = "before run_start" if start is None else "after run_stop"
            expected = "evaluations within the run"
            self._refuse(record, f"{record.key} {where}", expected=expected, report=self._odd)
            return
        self._read_aside()
        if self._quality_key not in (None, record.key):
            message = f"{record.key} after {self._quality_key}"
            self._refuse(record, message, expected="one of the two")
            return
        self._quality_key = record.key
        if self._several is not None:
            if not self._offline:
                self._check_time(record, self._clock.advance(record))
            self._several.read(record, seconds=_seconds(start, record.time_ms))
            return
        if not self._offline:  # There its time is that of the measuring.
            self._check_time(record, self._clock.advance(record))
        others = None
        if self._tables and type(record.value) is dict:
            record, others = first_quality(record)
        try:
            epoch, samples, quality = read_measurement(record, file=self._file)
        except LogFormatError as error:
            self._report(error)
            return
        evaluating = self._clock.evaluating
        if self._told:
            evaluating.measure(record.time_ms)
        self._evaluations.append(
            Evaluation(
                epoch,
                _seconds(start, record.time_ms),
                quality,
                samples,
                self._clock.ledger(record.time_ms) if evaluating.told else None,
                record.line() if self._told else None,
                others,
            )
        )

    def _read_whole(self, lines: WholeEvaluation) -> None:
        """Take in three lines together where each goes on from the one before, else one by one."""
        start = self._start
        if start is None or not self._goes_on(lines):
            for record in lines.records():
                self.read(record)
            return
        self._quality_key = "eval_accuracy"
        self._clock.evaluating.start(lines.start_ms)
        self._evaluations.append(
            Evaluation(
                lines.epoch,
                _seconds(start, lines.time_ms),
                lines.quality,
                lines.samples,
                self._clock.ledger(lines.time_ms),
                lines.line(),
            )
        )
        self._clock.evaluating.stop(lines.stop_ms)
        self._clock.last = ("eval_stop", lines.stop_ms)

    def _goes_on(self, lines: WholeEvaluation) -> bool:
        """Whether these lines can follow in a run that has started."""
        last = self._clock.last
        return (
            self._stop is None
            and self._quality_key in (None, "eval_accuracy")
            and self._several is None
            and not self._offline
            and last is not None
            and last[1] <= lines.start_ms <= lines.time_ms <= lines.stop_ms
        )

    def _check_time(
        self, record: MllogRecord, problem: str | None, *, report: Report | None = None
    ) -> bool:
        """Whether nothing is wrong with the time of a line; report it if something is."""
        if problem is None:
            return True
        expected = "times that do not decrease"
        self._refuse(record, problem, field="time_ms", expected=expected, report=report)
        return False

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

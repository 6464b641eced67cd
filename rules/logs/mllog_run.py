"""The run that the lines of an MLPerf log add up to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rules.errors import LogFormatError
from rules.logs.blocks import Block
from rules.logs.mllog_evaluation import (
    EvaluationTime,
    first_quality,
    read_measurement,
    read_status,
)
from rules.logs.mllog_lines import Report
from rules.logs.mllog_record import MllogRecord, is_number, read_record
from rules.logs.mllog_settings import SETTING_KEYS, LogSettings
from rules.logs.mllog_whole_evaluation import MllogItem, WholeEvaluation
from rules.logs.several_metrics import SeveralMetrics
from rules.quality import LoggedQuality, QualityTarget
from rules.run import Evaluation, Ledger, Run

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
RUN_KEYS = frozenset({"run_start", "run_stop"})
PHASE_KEYS = frozenset({"init_start", "init_stop", "eval_start", "eval_stop"})
COUNTED_KEYS = QUALITY_KEYS | RUN_KEYS | SETTING_KEYS | PHASE_KEYS
FIGURE_KEYS = COUNTED_KEYS - PHASE_KEYS - {"submission_platform"}
# A clock that is read twice for one moment, and rounded, can tell times this far apart.
ROUNDING_MS = 10


@dataclass(frozen=True)
class Reading:
    """What was read from one log: its run, and every seed it names.

    `trusted` is whether the log tells without contradiction when its run started and stopped.
    `evaluations` counts those it has, which may be more than were read.
    """

    run: Run
    seeds: tuple[int, ...]
    trusted: bool
    evaluations: int


class RunReader:
    """What a log has said up to one line; what contradicts it is reported.

    Where the reporting does not raise, the line that contradicts is left out and reading goes on.
    What published logs may have because no figure rests on it goes to `odd`, where there is one.
    `told` is whether the lines of the phases are read too, so that there is a ledger, and whether
    evaluations are to know their line. `target` tells whether an evaluation is several metrics, and
    whether it is made once the run is over; where nothing tells, a line may have several qualities.
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
    ) -> None:
        self._file = file
        self._told = told
        self._report = report
        self._odd = odd or report
        self._settings = LogSettings(allowed, file=file, report=report, odd=self._odd)
        self._init_start_ms: float | None = None
        self._start: MllogRecord | None = None
        self._stop: MllogRecord | None = None
        self._last: tuple[str, float] | None = None  # Key and time of the last line that counts.
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
        self._phases_in_order = True
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
        return self._ledger(self._start, self._last[1])

    def _read_phase(self, record: MllogRecord) -> None:
        if record.key == "init_start":
            self._read_init_start(record)
        elif self._offline and record.key != "init_stop":
            return  # Quality is measured after the run, off its clock.
        elif record.key != "init_stop" and (self._start is None or self._stop is not None):
            return
        elif not self._advance(record, report=self._odd):
            self._phases_in_order = False
        elif record.key != "init_stop":
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
            self._phases_in_order = False
            self._refuse(
                record,
                "run_start earlier than init_start",
                field="time_ms",
                expected="times that do not decrease",
                report=self._odd,
            )
        elif not self._advance(record, report=self._odd):
            self._phases_in_order = False
        self._start = record
        self._last = (record.key, record.time_ms)

    def _read_run_stop(self, record: MllogRecord) -> None:
        if self._stop is not None:
            self._contradicted = True
            self._refuse(record, "a second run_stop", expected="exactly one run_stop")
        elif self._start is None:
            self._contradicted = True
            self._refuse(record, "run_stop before run_start", expected="run_start first")
        else:
            self._read_aside()
            self._advance(record, report=self._odd if self._is_rounded(record) else None)
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
        if self._several is not None:
            if not self._offline:
                self._advance(record)
            self._several.read(record, seconds=_seconds(start, record.time_ms))
            return
        if not self._offline:  # There its time is that of the measuring.
            self._advance(record)
        others = None
        if self._tables and type(record.value) is dict:
            record, others = first_quality(record)
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
                _seconds(start, record.time_ms),
                quality,
                samples,
                self._ledger(start, record.time_ms) if self._evaluating.told else None,
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
        self._evaluating.start(lines.start_ms)
        self._evaluations.append(
            Evaluation(
                lines.epoch,
                _seconds(start, lines.time_ms),
                lines.quality,
                lines.samples,
                self._ledger(start, lines.time_ms),
                lines.line(),
            )
        )
        self._evaluating.stop(lines.stop_ms)
        self._last = ("eval_stop", lines.stop_ms)

    def _goes_on(self, lines: WholeEvaluation) -> bool:
        """Whether a run, once it started, is one whose next lines these are."""
        return (
            self._stop is None
            and self._quality_key in (None, "eval_accuracy")
            and self._several is None
            and not self._offline
            and self._last is not None
            and self._last[1] <= lines.start_ms <= lines.time_ms <= lines.stop_ms
        )

    def _is_rounded(self, stop: MllogRecord) -> bool:
        """Whether a run stops no earlier than its last evaluation but for what rounding makes."""
        start, last = self._start, self._last
        if start is None or last is None or stop.time_ms < start.time_ms:
            return False
        return last[1] - stop.time_ms <= ROUNDING_MS

    def _advance(self, record: MllogRecord, *, report: Report | None = None) -> bool:
        """Whether a line that counts is no earlier than the one before it; report it if it is."""
        if self._last is not None and record.time_ms < self._last[1]:
            last_key, last_ms = self._last
            self._refuse(
                record,
                f"{record.key} at {record.time_ms} ms after {last_key} at {last_ms} ms",
                field="time_ms",
                expected="times that do not decrease",
                report=report,
            )
            return False
        self._last = (record.key, record.time_ms)
        return True

    def _ledger(self, start: MllogRecord, end_ms: float) -> Ledger | None:
        """Seconds per phase up to a moment; what is not preparation or evaluation is train.

        None where the times of the phases contradict each other.
        """
        if not self._phases_in_order:
            return None
        eval_seconds = self._evaluating.total_ms(end_ms) / 1000
        first = start.time_ms if self._init_start_ms is None else self._init_start_ms
        return Ledger(
            init=(start.time_ms - first) / 1000,
            train=_seconds(start, end_ms) - eval_seconds,
            eval=eval_seconds,
        )

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

"""Read MLPerf Training logs: `:::MLLOG {json}` lines, and the formats of v0.5 and v0.6.

Source: MLPerf training_rules.adoc, "Logging". The required keys of the v5.1 compliance checker.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.lines import (
    MLLOG,
    MLP05,
    Format,
    Record,
    format_of,
    is_number,
    read_lines,
)
from finishline.rules.logs.mllog_values import (
    PROCESSOR_SHARE,
    SETTING_KEYS,
    LogSettings,
    Report,
    RunClock,
    SeveralMetrics,
    read_measurement,
    read_status,
)
from finishline.rules.logs.text import refuse_long_lines
from finishline.rules.run import Evaluation, Run

QUALITY_KEYS = frozenset({"eval_accuracy", "eval_error"})
RUN_KEYS = frozenset({"run_start", "run_stop"})
PHASE_KEYS = frozenset({"init_start", "init_stop", "eval_start", "eval_stop"})
# Samples that a run of BERT trained on, where its epoch_num counts something else. Other logs have
# the size of the data set there. Source: training_rules.adoc, "Benchmark specific rules".
TRAINED, TRAINED_COUNTED = "train_samples", "bert"
COUNTED_KEYS = QUALITY_KEYS | RUN_KEYS | SETTING_KEYS | PHASE_KEYS
# Of MiniGo in v0.6 eval_result tells when the run stopped.
FIGURE_KEYS = QUALITY_KEYS | RUN_KEYS | {"eval_result"}
PUBLISHED_KEYS = FIGURE_KEYS | SETTING_KEYS | {"init_start", "init_stop", TRAINED}
MOST_KEPT_PROBLEMS = 100


@dataclass(frozen=True)
class Reading:
    """One log. `placeholder` means that a sentence replaces it, `version` "0.5" or "0.6" its round.

    `trusted` means that the start and the stop of its run are free of contradiction.
    """

    run: Run
    trusted: bool = False
    version: str | None = None
    placeholder: bool = False


def parse_mllog(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """Read the run in an MLPerf log, its seconds counted from run_start.

    Lines of several ranks may be interleaved. The times of the lines that count (init_stop,
    run_start, evaluations, run_stop) may not decrease. A log without run_stop has status and
    stop_seconds None. Evaluations have a ledger if the log has eval_start lines. Raises
    LogFormatError naming file, line, field and expectation.

    In the log of an `archive` the oddities of `read_log` are skipped.
    """

    def refuse(error: LogFormatError) -> None:
        raise error

    def pass_over(error: LogFormatError) -> None:
        """Leave the line out."""

    refuse_long_lines(content, file=name)
    form = format_of(content) or MLLOG
    allowed = {"submission_benchmark": benchmark.log_names}
    if form is not MLP05:  # Its lines omit the division.
        allowed["submission_division"] = benchmark.divisions
    return read_log(
        [content],
        form,
        name=name,
        allowed=allowed,
        report=refuse,
        odd=pass_over if archive or form is MLP05 else refuse,
        target=benchmark.target,
    ).run


def read_log(
    chunks: Iterable[bytes],
    form: Format,
    *,
    name: str,
    allowed: Mapping[str, Sequence[str]],
    report: Report,
    odd: Report,
    target: QualityTarget | None = None,
    every_line: bool = True,
) -> Reading:
    """Read the run in an MLPerf log of any size, given piece by piece.

    Errors go to `report`, which may raise. If it returns, the wrong line is left out. Harmless
    oddities of published logs go to `odd`: an unreadable line with another key than a figure's, any
    unreadable line at the end of a log or of an endless run, an evaluation outside the run, phases
    in disorder, a seed that is not an integer, a misleading line. `allowed` has the allowed texts
    of settings such as submission_division. `target` names the metrics of an evaluation with
    several.

    Without `every_line` only the lines with a key of a published figure are read, so ledger and
    hyperparameters are absent.
    """
    tolerant = odd is not report
    unread: list[LogFormatError] = []

    def report_line(error: LogFormatError, text: bytes) -> None:
        key = form.key_of(text)
        keyless = error.code == "bad_line" and error.field == "key"
        if not tolerant:
            report(error)
        elif keyless or (key is not None and key not in FIGURE_KEYS):
            odd(error)
        elif error.code == "bad_json" and len(unread) < MOST_KEPT_PROBLEMS:
            unread.append(error)
        else:
            report(error)

    wanted = None if every_line or form is not MLLOG else PUBLISHED_KEYS
    records = read_lines(chunks, form, file=name, wanted=wanted, report=report_line)
    reader = RunReader(
        name,
        allowed,
        report=report,
        odd=odd,
        target=None if form is MLP05 else target,
        first_epoch=form.first_epoch,
    )
    followed = 0
    misleads = tolerant and form is MLLOG
    for record in form.as_later(records, target):
        if unread and record.key in PUBLISHED_KEYS:
            followed = len(unread)
        if misleads and record.key not in COUNTED_KEYS and (key := record.misleading_key()):
            reader.odd(
                record.fault(
                    f"a line of {record.key!r} with {key} in it",
                    f"{key} as a key, or not at all",
                    code="misleading_line",
                )
            )
        reader.read(record)
    reading = reader.reading(form.version)
    unfinished = reading.run.stop_seconds is None
    for place, error in enumerate(unread):
        is_last = place == followed == len(unread) - 1
        (odd if reading.trusted and (unfinished or is_last) else report)(error)
    return reading


class RunReader:
    """State of a log up to one line. Contradictions are reported.

    If the reporting returns, the contradicting line is left out and reading continues. Oddities of
    published logs that no figure depends on go to `odd`. `target` tells whether an evaluation is
    several metrics, and whether it is made after the run. Without it, a line may have several
    qualities, the main one first. `first_epoch` is from v0.5.
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
        def of_file(report: Report) -> Report:
            def name_file(error: LogFormatError) -> None:
                error.file = file
                report(error)

            return name_file

        self.odd = of_file(odd)
        self._report = of_file(report)
        self._file = file
        self._first_epoch = first_epoch
        self._settings = LogSettings(allowed, odd=self.odd)
        self._clock = RunClock()
        self._start: Record | None = None
        self._stop: Record | None = None
        self._quality_key: str | None = None
        self._evaluations: list[Evaluation] = []
        self._several: SeveralMetrics | None = None
        if target is not None and target.logged_names:
            self._several = SeveralMetrics(target.logged_names, steps=target.steps)
        self._offline = target is not None and target.offline
        self._tables = target is None
        self._trained: float | None = None
        self._contradicted = False
        self._handlers: dict[str, Callable[[Record], None]] = {
            **dict.fromkeys(QUALITY_KEYS, self._read_evaluation),
            **dict.fromkeys(SETTING_KEYS, self._settings.read),
            "init_start": self._read_init_start,
            "init_stop": lambda record: self._report_time(record, self._clock.phase(record)),
            "eval_start": self._read_eval_phase,
            "eval_stop": self._read_eval_phase,
            "run_start": self._read_run_start,
            "run_stop": self._read_run_stop,
            TRAINED: self._read_trained,
            PROCESSOR_SHARE: self._settings.read_processor_share,
        }

    def read(self, record: Record) -> None:
        handler = self._handlers.get(record.key)
        try:
            if handler is not None:
                handler(record)
            elif record.point_in_time and self._start is None and is_number(record.value):
                self._settings.read_hyperparameter(record)
        except LogFormatError as error:
            self._report(error)

    def reading(self, version: str | None) -> Reading:
        """Return the run, after the last line."""
        settings, start, stop = self._settings, self._start, self._stop
        if start is None:
            (self.odd if "submission_benchmark" in settings.texts else self._report)(
                LogFormatError(
                    "no run_start",
                    field="run_start",
                    expected="MLLOG lines with exactly one run_start",
                    code="no_run_start",
                )
            )
        if (nameless := settings.nameless()) is not None:
            self._report(nameless)
        if self._several is not None:
            batch_size = settings.integers.get("global_batch_size")
            self._evaluations += self._several.evaluations(batch_size, report=self._report)
        if self._trained and settings.texts.get("submission_benchmark") == TRAINED_COUNTED:
            self._evaluations[-1:] = [
                replace(last, epoch=self._trained) for last in self._evaluations[-1:]
            ]
        ledger = None
        if start and self._clock.last and (self._clock.has_evaluations or not self._evaluations):
            ledger = self._clock.ledger(self._clock.last.time_ms)
        run = Run(
            name=self._file,
            clock="mlperf",
            evaluations=tuple(self._evaluations),
            status=self._status(stop) if stop else None,
            stop_seconds=(stop.time_ms - start.time_ms) / 1000 if start and stop else None,
            seed=settings.integers.get("seed"),
            seeds=tuple(settings.seeds),
            batch_size=settings.integers.get("global_batch_size"),
            benchmark=settings.texts.get("submission_benchmark"),
            division=settings.texts.get("submission_division"),
            organisation=settings.texts.get("submission_org"),
            platform=settings.texts.get("submission_platform"),
            hyperparameters=settings.hyperparameters,
            ledger=ledger,
            preparation_seconds=self._clock.preparation_seconds,
            processor_share=settings.processor_share,
            start_ms=start.time_ms if start else None,
            start_line=start.line if start else None,
        )
        return Reading(run, trusted=start is not None and not self._contradicted, version=version)

    def _status(self, stop: Record) -> str | None:
        try:
            return read_status(stop)
        except LogFormatError as error:
            self._contradicted = True
            self._report(error)
            return None

    def _read_init_start(self, record: Record) -> None:
        if self._start is not None:
            raise _out_of_order(record, "init_start after run_start", "init_start first")
        self._clock.init_start(record.time_ms)

    def _read_eval_phase(self, record: Record) -> None:
        if self._offline or self._start is None or self._stop is not None:
            return  # Offline, quality is measured after the run, off its clock.
        if (fault := self._clock.phase(record)) is not None:
            self._report_time(record, fault)
        elif record.key == "eval_start":
            self._clock.start_evaluation(record.time_ms)
        else:
            self._clock.stop_evaluation(record.time_ms)

    def _read_run_start(self, record: Record) -> None:
        if self._start is not None:
            self._contradicted = True
            raise _out_of_order(record, "a second run_start", "exactly one run_start")
        self._report_time(record, self._clock.run_start(record))
        self._start = record

    def _read_run_stop(self, record: Record) -> None:
        if self._stop is not None or self._start is None:
            self._contradicted = True
            if self._start is None:
                raise _out_of_order(record, "run_stop before run_start", "run_start first")
            raise _out_of_order(record, "a second run_stop", "exactly one run_stop")
        self._advance(record, self.odd if self._clock.is_rounded(record) else self._report)
        self._contradicted |= record.time_ms < self._start.time_ms
        self._stop = record

    def _read_trained(self, record: Record) -> None:
        if self._start is not None and is_number(record.value) and record.value > 0:
            self._trained = float(record.value)

    def _read_evaluation(self, record: Record) -> None:
        start, clock = self._start, self._clock
        if start is None or self._stop is not None:
            where = "before run_start" if start is None else "after run_stop"
            self.odd(_out_of_order(record, f"{record.key} {where}", "evaluations within the run"))
            return
        if self._quality_key not in (None, record.key):
            raise _out_of_order(record, f"{record.key} after {self._quality_key}", "one of the two")
        self._quality_key = record.key
        # Offline its time is when it was measured, after the run.
        if not self._offline and not self._advance(record, self._report):
            return
        seconds = (record.time_ms - start.time_ms) / 1000
        if self._several is not None:
            self._several.read(record, seconds=seconds)
            return
        others = None
        if self._tables and type(record.value) is dict:
            (_, first), *rest = record.value.items() or (("", None),)
            others = {name: float(quality) for name, quality in rest if is_number(quality)}
            record = record._replace(value=first)
        epoch, samples, quality = read_measurement(record, first_epoch=self._first_epoch)
        clock.measure(record.time_ms)
        ledger = clock.ledger(record.time_ms) if clock.has_evaluations else None
        self._evaluations.append(
            Evaluation(epoch, seconds, quality, samples, ledger, record.line, others)
        )

    def _advance(self, record: Record, report: Report) -> bool:
        """Advance to a figure's line if its time goes on. Behind a phase's line it is only odd."""
        if (fault := self._clock.fault(record)) is not None:
            if figure_fault := self._clock.fault(record, figure=True):
                report(_decreasing(record, figure_fault))
                return False
            self._report_time(record, fault)
        self._clock.advance(record)
        return True

    def _report_time(self, record: Record, fault: str | None) -> None:
        if fault is not None:
            self.odd(_decreasing(record, fault))


def _decreasing(record: Record, fault: str) -> LogFormatError:
    expected = "times that do not decrease"
    return record.fault(fault, expected, field="time_ms", code="times_decrease")


def _out_of_order(record: Record, message: str, expected: str) -> LogFormatError:
    return record.fault(message, expected, code="lines_out_of_order")

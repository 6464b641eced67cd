"""MLPerf Training v0.5 logs (`:::MLPv0.5.0 resnet 1541720386.718 (file.py:49) key: json`) as runs.

No checker was ever published for them. The value is optional, times are seconds, run_stop may say
{"success": true} or "true" or nothing, and epochs may count from 0.
Source: mlcommons/training_results_v0.5.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from finishline.rules.benchmarks.quality import LoggedQuality, QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_clock import ROUNDING_MS
from finishline.rules.logs.mllog_evaluation import MAX_COUNT
from finishline.rules.logs.mllog_lines import MAX_MLLOG_LINES, Report
from finishline.rules.logs.mllog_record import is_number
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.logs.text import MAX_MLLOG_LINE_BYTES, parse_json, whole_line_blocks
from finishline.rules.scoring.run import Evaluation, Run

MLP_MARK = b":::MLPv0.5"
MAX_SEED = 2**63 - 1
MAX_SEEDS = 100
FIRST_EPOCH = -1  # In published logs of the transformer.
# Where a log has several qualities at once, the target is stated for the first of these.
QUALITY_NAMES = ("BBOX", "bbox", "BB", "box")
_COUNTED = rb"run_start|run_stop|eval_accuracy|run_set_random_seed|seed"
_MARKED = re.compile(re.escape(MLP_MARK) + rb"[^\r\n]*")
_LINE = re.compile(
    re.escape(MLP_MARK)
    + rb"[0-9.]{0,8} (?P<benchmark>[a-z0-9_]{1,40}) (?P<time>[0-9]{1,12}(?:\.[0-9]{0,12})?)"
    + rb" \(.{0,300}?\) (?P<key>" + _COUNTED + rb")(?::[ ]*(?P<value>.*))?[ ]*"
)  # fmt: skip


class _Line(NamedTuple):
    line: Callable[[], int]
    key: str
    seconds: float
    value: Any
    benchmark: str


def read_mlp05_chunks(
    chunks: Iterable[bytes],
    *,
    name: str,
    allowed: Mapping[str, Sequence[str]],
    report: Report,
    notice: Report | None = None,
    target: QualityTarget | LoggedQuality | None = None,
) -> Reading:
    """The run in a v0.5 log of any size, given piece by piece; its seconds count from run_start.

    Errors go to `report`, which may raise; if it does not, the line is left out. So is an
    evaluation outside the run, which goes to `notice` where there is one: published logs measure
    while they warm up. A line that two loggers wrote alike counts once. The status is "success" or
    "aborted" where run_stop tells, None where it does not. `target` names the metrics of an
    evaluation that has several.
    """
    names = target.logged_names if target is not None else ()
    reader = _RunReader(name, allowed.get("submission_benchmark"), report, notice, names)
    for line in _read_lines(chunks, file=name, report=report):
        reader.read(line)
    return reader.reading()


def _read_lines(chunks: Iterable[bytes], *, file: str, report: Report) -> Iterator[_Line]:
    found = 0
    written: dict[bytes, bytes] = {}
    for block in whole_line_blocks(chunks, mark=MLP_MARK):
        for marked in _MARKED.finditer(block.content):
            match = _LINE.fullmatch(marked[0])
            if match is None:
                continue
            if written.get(match["key"]) == marked[0]:
                continue
            written[match["key"]] = marked[0]
            found += 1
            start = marked.start()

            def line(block: Any = block, start: int = start) -> int:
                return int(block.line_at(start))

            if found > MAX_MLLOG_LINES:
                expected = f"at most {MAX_MLLOG_LINES:,} lines that count"
                report(LogFormatError("too many lines", file=file, line=line(), expected=expected))
                return
            try:
                value = _value(match["value"], file=file, line=line)
            except LogFormatError as error:
                report(error)
                continue
            yield _Line(
                line,
                match["key"].decode(),
                float(match["time"]),
                value,
                match["benchmark"].decode(),
            )


def _value(text: bytes | None, *, file: str, line: Callable[[], int]) -> Any:
    if text is None or not text.strip():
        return None
    if len(text) > MAX_MLLOG_LINE_BYTES:
        expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
        message = f"a line of more than {MAX_MLLOG_LINE_BYTES:,} bytes"
        raise LogFormatError(message, file=file, line=line(), expected=expected, code="long_line")
    try:
        return parse_json(text, file=file)
    except LogFormatError as error:
        error.line = line()
        raise


class _RunReader:
    """State of a v0.5 log up to one line."""

    def __init__(
        self,
        file: str,
        benchmarks: Sequence[str] | None,
        report: Report,
        notice: Report | None,
        metrics: Sequence[str],
    ) -> None:
        self._file = file
        self._benchmarks = benchmarks
        self._report = report
        self._notice = notice or report
        self._metrics = metrics
        self._benchmark: str | None = None
        self._start: float | None = None
        self._last = 0.0  # Of the lines that count.
        self._stop: float | None = None
        self._status: str | None = None
        self._seeds: list[int] = []
        self._evaluations: list[Evaluation] = []
        self._contradicted = False

    def read(self, line: _Line) -> None:
        """Take one line in."""
        self._read_benchmark(line)
        if line.key == "run_start":
            self._read_run_start(line)
        elif line.key == "run_stop":
            self._read_run_stop(line)
        elif line.key == "eval_accuracy":
            self._read_evaluation(line)
        elif type(line.value) is int:
            self._read_seed(line.value)

    def reading(self) -> Reading:
        """The run, after the last line."""
        start, stop = self._start, self._stop
        if start is None:
            self._report(
                LogFormatError(
                    "no run_start",
                    file=self._file,
                    field="run_start",
                    expected="a run_start line",
                    code="no_run_start",
                )
            )
        run = Run(
            name=self._file,
            clock="mlperf",
            evaluations=tuple(self._evaluations),
            status=self._status,
            stop_seconds=None if start is None or stop is None else stop - start,
            seed=self._seeds[0] if self._seeds else None,
            benchmark=self._benchmark,
        )
        trusted = start is not None and not self._contradicted
        return Reading(
            run=run,
            seeds=tuple(self._seeds),
            trusted=trusted,
            evaluations=len(self._evaluations),
        )

    def _read_seed(self, seed: int) -> None:
        known = seed in self._seeds or len(self._seeds) == MAX_SEEDS
        if not known and 0 <= seed <= MAX_SEED:
            self._seeds.append(seed)

    def _read_benchmark(self, line: _Line) -> None:
        if self._benchmark is None:
            self._benchmark = line.benchmark
            if self._benchmarks is not None and line.benchmark not in self._benchmarks:
                self._refuse(
                    line,
                    f"the log is of the benchmark {line.benchmark!r}",
                    " or ".join(self._benchmarks),
                    code="wrong_benchmark",
                )
        elif line.benchmark != self._benchmark:
            self._refuse(
                line,
                f"a line of {line.benchmark!r} in a log of {self._benchmark!r}",
                "one benchmark in a log",
                code="setting_changes",
            )

    def _read_run_start(self, line: _Line) -> None:
        if self._start is None:
            self._start = self._last = line.seconds
        else:
            self._refuse(line, "a second run_start", "one run_start; the first counts")

    def _read_run_stop(self, line: _Line) -> None:
        if self._stop is not None:
            self._contradicted = True
            self._refuse(line, "a second run_stop", "exactly one run_stop")
            return
        if self._start is None or line.seconds < self._last - ROUNDING_MS / 1000:
            self._contradicted = True
            before = "run_start" if not self._evaluations else "the last evaluation"
            self._refuse(line, f"run_stop before {before}", "run_start and evaluations first")
            return
        self._stop = line.seconds
        success = line.value.get("success") if type(line.value) is dict else None
        if success is not None:
            self._status = "success" if success in (True, "true", "True") else "aborted"

    def _read_evaluation(self, line: _Line) -> None:
        if self._start is None or self._stop is not None:
            where = "before run_start" if self._start is None else "after run_stop"
            message, expected = f"eval_accuracy {where}", "evaluations within the run"
            self._notice(self._problem(line, message, expected, code="lines_out_of_order"))
            return
        if line.seconds < self._last:
            message = f"eval_accuracy at {line.seconds:.3f} s after a line at {self._last:.3f} s"
            self._refuse(line, message, "times that do not decrease", code="times_decrease")
            return
        epoch, quality, others = _measurement(line.value, self._metrics)
        if quality is None:
            self._refuse(line, f"{line.value!r}"[:60], "a finite number", code="bad_value")
            return
        if epoch is not None and not FIRST_EPOCH <= epoch <= MAX_COUNT:
            expected = f"an epoch from {FIRST_EPOCH} to 2^53"
            self._refuse(line, f"epoch {epoch:g}", expected, code="bad_value")
            return
        self._last, seconds = line.seconds, line.seconds - self._start
        self._evaluations.append(
            Evaluation(epoch=epoch, seconds=seconds, quality=quality, others=others)
        )

    def _refuse(
        self, line: _Line, message: str, expected: str, *, code: str = "lines_out_of_order"
    ) -> None:
        self._report(self._problem(line, message, expected, code=code))

    def _problem(self, line: _Line, message: str, expected: str, *, code: str) -> LogFormatError:
        return LogFormatError(
            message,
            file=self._file,
            line=line.line(),
            field=line.key,
            expected=expected,
            code=code,
        )


def _measurement(
    value: Any, metrics: Sequence[str]
) -> tuple[float | None, float | None, dict[str, float] | None]:
    """Epoch, quality and further qualities of an eval_accuracy: a number, or an object with them.

    Of `metrics` the first is the quality; they are found in upper and lower case.
    """
    epoch = None
    if type(value) is dict:
        epoch, value = value.get("epoch"), value.get("value")
    others = None
    if type(value) is dict and metrics:
        said = {str(name).lower(): each for name, each in value.items()}
        found = {name: _number(said.get(name.lower())) for name in metrics}
        value = found.pop(metrics[0])
        others = {name: quality for name, quality in found.items() if quality is not None}
    elif type(value) is dict:
        value = next((value[name] for name in QUALITY_NAMES if name in value), None)
    return (float(epoch) if is_number(epoch) else None), _number(value), others


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) and math.isfinite(value) else None

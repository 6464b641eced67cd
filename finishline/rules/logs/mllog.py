"""MLPerf Training logs (`:::MLLOG {json}` lines) as runs.

Source: MLPerf training_rules.adoc, "Logging"; the required keys of the v5.1 compliance checker.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import LoggedQuality, QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_clock import RunClock
from finishline.rules.logs.mllog_lines import Report, every_line, lines_that_count, read_mllog
from finishline.rules.logs.mllog_record import MllogRecord
from finishline.rules.logs.mllog_run import (
    COUNTED_KEYS,
    FIGURE_KEYS,
    Reading,
    RunReader,
)
from finishline.rules.logs.mllog_write import write_run_log
from finishline.rules.logs.text import Block, refuse_long_lines
from finishline.rules.scoring.convergence import ConvergenceUnit
from finishline.rules.scoring.run import Run

__all__ = ["parse_mllog", "read_mllog_chunks", "read_preparation_seconds", "write_run_log"]

Detail = Literal["all", "figures", "last"]

_COUNTS: Mapping[ConvergenceUnit, re.Pattern[bytes]] = {
    "epoch_num": re.compile(rb'"epoch_num": ([0-9]{1,15}(?:\.[0-9]{0,20})?)'),
    "samples_count": re.compile(rb'"samples_count": ([0-9]{1,15})'),
}
_EVERY_LINE = every_line()
_FIGURE_LINES = lines_that_count(FIGURE_KEYS)
# The first group of an init_start has its time in these bytes.
_INIT_TIME = slice(30, 43)
_PREPARATION_LINES = lines_that_count(
    {"init_start", "init_stop", "run_start"},
    repeated=rb' \{"namespace": "", "time_ms": [0-9]{13}, "event_type": "INTERVAL_START", '
    rb'"key": "init_start", ',
)


def parse_mllog(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """The run in an MLPerf log, its seconds counted from run_start.

    Lines of several ranks may be interleaved; the times of the lines that count (init_stop,
    run_start, evaluations, run_stop) may not decrease. A log without run_stop has status and
    stop_seconds None. Evaluations have a ledger if the log has eval_start lines. Raises
    LogFormatError naming file, line, field and expectation.

    In the log of an `archive` a line that is no JSON is left out if no figure needs it, or if the
    log ends in it: ranks of published runs wrote over each other's lines. So are a line without a
    key and the other oddities of published logs that no figure rests on (`odd` of
    read_mllog_chunks).
    """

    needless = _NeedlessLines(content)

    def refuse(error: LogFormatError) -> None:
        keyless = error.code == "bad_line" and error.field == "key"
        broken = error.line if error.code == "bad_json" else None
        if not (archive and (keyless or (broken is not None and broken in needless))):
            raise error

    def pass_over(error: LogFormatError) -> None:
        """Leave the line out."""

    refuse_long_lines(content, file=name)
    allowed = {
        "submission_benchmark": benchmark.log_names,
        "submission_division": benchmark.divisions,
    }
    return read_mllog_chunks(
        [content],
        name=name,
        allowed=allowed,
        report=refuse,
        odd=pass_over if archive else None,
        target=benchmark.target,
    ).run


class _NeedlessLines:
    """Lines that no figure needs, by number from 1, and the one that a log is cut off in.

    Cheap for lines asked for in their order: a log may have a broken one after the other.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._written = len(content.rstrip())
        self._line, self._start = 1, 0

    def __contains__(self, line: int) -> bool:
        while self._line < line:
            self._line, self._start = self._line + 1, self._content.index(b"\n", self._start) + 1
        end = self._content.find(b"\n", self._start)
        is_last = end < 0 or end >= self._written
        text = self._content[self._start : None if is_last else end]
        return is_last or next(_FIGURE_LINES.find_in(text), None) is None


def read_mllog_chunks(
    chunks: Iterable[bytes],
    *,
    name: str,
    allowed: Mapping[str, Sequence[str]],
    report: Report,
    notice: Report | None = None,
    odd: Report | None = None,
    detail: Detail = "all",
    target: QualityTarget | LoggedQuality | None = None,
    counted: ConvergenceUnit | None = None,
) -> Reading:
    """The run in an MLPerf log of any size, given piece by piece.

    Errors go to `report`, which may raise; if it does not, the wrong line is left out. Misleading
    lines go to `notice`. An evaluation outside the run, phases in disorder and a seed that is none
    go to `odd` where there is one: published logs have them, and no figure rests on the lines left
    out. `allowed` has the texts that settings such as submission_division may have.

    With `detail` "figures" the lines that no figure needs are not parsed: there is no ledger, there
    are no hyperparameters, evaluations do not know their line, and errors in such lines are not
    seen. With "last" the same holds for all evaluations with a number but the last, which the run
    has alone; of the one before it the count is known, in epochs or samples as `counted` says.

    `target` names the metrics of an evaluation that has several; then all of them are read, with
    any `detail`.
    """
    several = target is not None and bool(target.logged_names)
    reader = RunReader(
        name,
        allowed,
        told=detail == "all",
        report=report,
        odd=odd,
        target=target,
        counts=_COUNTS[counted] if counted is not None else None,
    )
    records = read_mllog(
        chunks,
        file=name,
        lines=_EVERY_LINE if detail == "all" else _FIGURE_LINES,
        counted_keys=COUNTED_KEYS,
        report=report,
        notice=notice,
        set_aside=reader.set_aside if detail == "last" and not several else None,
        at_once=detail == "all" and notice is None,
    )
    for record in records:
        reader.read(record)
    return reader.reading()


def read_preparation_seconds(chunks: Iterable[bytes], *, name: str) -> float | None:
    """Seconds from the first init_start of any rank to run_start, as `RunClock` counts them.

    Wrong lines are left out, and an init_start that cannot be the first is not parsed: a log may
    have one for each of a thousand ranks.
    """
    clock = RunClock()

    def is_later(line: re.Match[bytes], block: Block) -> bool:
        first = clock.init_start_ms
        return first is not None and int(line[1][_INIT_TIME]) >= first

    records = read_mllog(
        chunks,
        file=name,
        lines=_PREPARATION_LINES,
        counted_keys=COUNTED_KEYS,
        report=lambda error: None,
        set_aside=is_later,
    )
    for record in records:
        match record:
            case MllogRecord(key="init_start"):
                clock.init_start(record.time_ms)
            case MllogRecord(key="init_stop"):
                clock.phase(record)
            case MllogRecord(key="run_start"):
                clock.run_start(record)
                break
    return clock.preparation_seconds

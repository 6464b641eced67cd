"""Convert files of other programs to run logs: CSV tables and the state of a Trainer.

Source of the state: transformers 5.23, trainer_callback.py, TrainerState.
"""

import csv
import io
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.lines import EARLIEST_TIME_MS, MAX_TIME_MS, mllog_line
from finishline.rules.logs.mllog_values import MAX_COUNT
from finishline.rules.logs.text import parse_json, refuse_other_content
from finishline.rules.text import count_text, did_you_mean, names_text, shown

MOST_COLUMNS = 1000
MOST_ROWS = 1_000_000
MAX_SECONDS = MAX_TIME_MS / 1000
STEP = "step"
# Names that programs give to these columns, after the last "/". The first one wins.
EPOCHS = ("epoch", "epochs", "epoch_num", "current_epoch")
STEPS = (STEP, "global_step", "_step", "steps", "iteration", "iter", "num_updates")
# The first group with a character in the header. Its most frequent one separates the cells.
SEPARATORS = (",;\t|", " ", ":^~&\x01\x1f")
UNITS = {
    1e-9: "ns nanos nanosecond nanoseconds",
    1e-6: "us µs μs usec usecs micros microsecond microseconds",
    1e-3: "ms msec msecs millis millisecond milliseconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
}
SECONDS_OF = {word: seconds for seconds, words in UNITS.items() for word in words.split()}
# Units only at the end of a name, such as time_min: elsewhere min is a minimum.
AT_THE_END = ("us", "m", "min", "h", "d")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zµμ]+")
_FRACTION = re.compile(r"[-+]?\d*([.,])\d+")


@dataclass(frozen=True)
class Row:
    """Numbers and texts that a program wrote at one moment, by name. Some files lack lines."""

    cells: Mapping[str, float | str]
    line: int | None = None


@dataclass(frozen=True)
class Source:
    """The rows of a file, the names in them, and the names of several columns.

    `time` names the times that every such file has. With `commas` numbers have decimal commas.
    """

    file: str
    rows: Sequence[Row]
    names: Sequence[str]
    repeated: frozenset[str] = frozenset()
    time: str | None = None
    commas: bool = False

    def number(self, row: Row, name: str | None) -> float | None:
        """Read the number in a cell. Other texts give None."""
        cell = row.cells.get(name or "", "")
        try:
            return float(cell.replace(",", ".") if self.commas and type(cell) is str else cell)
        except (ValueError, OverflowError):
            return None

    def checked(self, row: Row, name: str, least: float, most: float) -> float:
        """Read a number from `least` to `most` in a cell. Raises LogFormatError."""
        number = self.number(row, name)
        if number is None or not (math.isfinite(number) and least <= number <= most):
            limits = f" from {least:g} to {most:g}" if most < math.inf else ""
            raise self.fault(row, name, _got(row, name), f"a finite number{limits}, such as 0.98")
        return number

    def seconds(self, row: Row, time: str, scale: float) -> float | None:
        """Read a cell's time: a number times `scale`, an ISO date, or None."""
        number = self.number(row, time)
        if number is None:
            return read_moment(str(row.cells.get(time, "")))
        return number * scale if 0 <= number * scale <= MAX_SECONDS else None

    def fault(self, row: Row, name: str, message: str, expected: str) -> LogFormatError:
        if row.line is None and (step := self.number(row, STEP)) is not None:
            message += f" at step {step:g}"
        return LogFormatError(message, file=self.file, line=row.line, field=name, expected=expected)


@dataclass(frozen=True)
class Reading:
    """How to read a file: columns, factors to the units of a log, seed, and its `first_epoch`."""

    quality: str | None = None
    time: str | None = None
    epoch: str | None = None
    step: str | None = None
    scale: float = 1.0
    time_scale: float | None = None
    first_epoch: int | None = None
    seed: int | None = None
    start_seconds: float | None = None


@dataclass(frozen=True)
class Converted:
    """A run log, the number of its evaluations, and what the source leaves open."""

    text: bytes
    evaluations: int
    quality: str
    epochs_from: str
    unknown: tuple[str, ...]


def convert_rows(source: Source, benchmark: Benchmark, reading: Reading) -> Converted:
    """Make a run log of the rows with a quality. Raises LogFormatError naming line and column.

    A row without an epoch takes its step's from another row. If all are missing, steps count.
    """
    epoch = _column(source, "epoch", reading.epoch, EPOCHS)
    step = _column(source, "step", reading.step, STEPS)
    if reading.step is not None and reading.epoch is None:
        epoch = None
    time = _column(source, "time", reading.time, ()) or source.time
    quality = _quality(source, reading.quality, benchmark, others={epoch, step, time})
    for name in (quality, time, epoch, step, "seed"):
        if name in source.repeated:
            expected = "one column of this name"
            raise LogFormatError(
                "a column twice", file=source.file, line=1, field=name, expected=expected
            )
    found = [row for row in source.rows if quality in row.cells]
    if not found:
        expected = f"a number in {quality[:80]!r} for each evaluation"
        raise LogFormatError("no evaluation", file=source.file, expected=expected)
    if time is None:
        expected = (
            f"a time for each evaluation: --time with one of {names_text(source.names, most=20)}"
        )
        message = "time unknown: the source does not say when its evaluations were made"
        raise LogFormatError(message, file=source.file, expected=expected, code="time_unknown")
    if source.commas:
        _refuse_two_marks(source, found, [name for name in (quality, time, epoch, step) if name])
    scale = _time_scale(source, found[0], time, reading)
    start = reading.start_seconds
    times: list[float] = []
    for row in found:
        seconds = source.seconds(row, time, scale)
        if seconds is None:
            expected = f"seconds from 0 to {MAX_SECONDS:g}, such as 10.5, or an ISO date"
            if source.number(row, time) is not None:
                expected += "; --time-scale 0.001 for milliseconds"
            raise source.fault(row, time, _got(row, time), expected)
        if times and seconds < times[-1]:
            message = f"the times go back from {times[-1]:g} to {seconds:g} s"
            raise source.fault(row, time, message, "the evaluations of one run, in order")
        times.append(seconds)
    if start is not None and start > times[0]:
        message = "the start lies after the first evaluation"
        raise LogFormatError(message, file=source.file, expected="an earlier --start")
    by, counts = _counts(source, found, epoch, step)
    numbers = [source.number(row, by) for row in source.rows]
    first = min(number for number in numbers if number is not None and number >= 0)
    shift = 0.0 if reading.first_epoch is None else reading.first_epoch - first
    # Times that count from 0 get a day: a log begins on one, and only differences are scored.
    day_ms = EARLIEST_TIME_MS if start is not None and start * 1000 < EARLIEST_TIME_MS else 0
    start_ms = day_ms + 1000 * (times[0] if start is None else start)
    lines = [mllog_line("submission_benchmark", benchmark.log_names[0], time_ms=start_ms)]
    if reading.seed is not None:
        lines.append(mllog_line("seed", reading.seed, time_ms=start_ms))
    if start is not None:
        lines.append(mllog_line("run_start", time_ms=start_ms, kind="INTERVAL_START"))
    for row, count, seconds in zip(found, counts, times, strict=True):
        value = reading.scale * source.checked(row, quality, -math.inf, math.inf)
        if math.isinf(value):
            raise source.fault(row, quality, f"got {value:g}", "a smaller number, or --scale")
        metadata = {"epoch_num": count + shift}
        time_ms = day_ms + 1000 * seconds
        lines.append(mllog_line("eval_accuracy", value, time_ms=time_ms, metadata=metadata))
    # An unevaluated step at 0 is one of many. An epoch at 0 is the first one.
    looked_at = source.rows if by == epoch else found
    before_training = {0.0} if start is None else {0.0, start}
    unknown = {
        "run_start": start is None,
        "run_stop": True,
        "seed": reading.seed is None,
        "first_epoch": reading.first_epoch is None
        and all(number is None or number.is_integer() for number in numbers)
        and any(
            source.number(row, by) == 0 and source.seconds(row, time, scale) not in before_training
            for row in looked_at
        ),
    }
    return Converted(
        text=b"".join(lines),
        evaluations=len(found),
        quality=quality,
        epochs_from=by,
        unknown=tuple(name for name, is_unknown in unknown.items() if is_unknown),
    )


def read_moment(text: str) -> float | None:
    """Read a number, or an ISO date (UTC by default) as seconds since 1970, else None."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return seconds if 0 <= seconds <= MAX_SECONDS else None


def _got(row: Row, name: str) -> str:
    return f"got {shown(row.cells[name])}" if name in row.cells else "an empty cell"


def _column(source: Source, what: str, asked: str | None, known: Sequence[str]) -> str | None:
    if asked is None:
        plain = {_plain(name): name for name in reversed(source.names)}
        return next((plain[name] for name in known if name in plain), None)
    if asked not in source.names:
        message = f"no column {asked[:80]!r}{did_you_mean(asked, source.names)}"
        expected = f"--{what} with one of {names_text(source.names, most=20)}"
        raise LogFormatError(message, file=source.file, expected=expected)
    return asked


def _plain(name: str) -> str:
    return name.casefold().rpartition("/")[2].replace(" ", "_")


def _quality(
    source: Source, asked: str | None, benchmark: Benchmark, *, others: set[str | None]
) -> str:
    """Return the requested column, else the benchmark's metric, else the only one with a number."""
    if asked in source.names:
        return str(asked)
    names = [
        name
        for name in source.names
        if name not in others
        and _plain(name) not in (*EPOCHS, *STEPS)
        and any(source.number(row, name) is not None for row in source.rows)
    ]
    if asked is not None:
        message = f"no quality {asked[:80]!r}{did_you_mean(asked, names)}"
        expected = f"one of {names_text(names, most=20)}" if names else "numbers"
        raise LogFormatError(message, file=source.file, expected=expected)
    metric = benchmark.target.metric.casefold()
    candidates = [name for name in names if name.casefold() == metric] or names
    if not names:
        raise LogFormatError("no number at all", file=source.file, expected="a quality")
    if len(candidates) > 1:
        message = f"{len(candidates)} names that may be the quality"
        expected = f"one chosen with --quality from {names_text(names, most=20)}"
        raise LogFormatError(message, file=source.file, expected=expected)
    return candidates[0]


def _refuse_two_marks(source: Source, found: Sequence[Row], names: Sequence[str]) -> None:
    """Raise LogFormatError for a decimal comma and a decimal point in one table."""
    marks = set()
    for row in found:
        for name in names:
            if match := _FRACTION.fullmatch(str(row.cells.get(name, ""))):
                marks.add(match[1])
                if len(marks) > 1:
                    expected = "either decimal points or decimal commas in all numbers"
                    raise source.fault(row, name, _got(row, name), expected)


def _time_scale(source: Source, row: Row, time: str, reading: Reading) -> float:
    """Return the times' factor. Raises LogFormatError if the column's unit needs one."""
    words = [word.casefold() for word in _WORD.findall(time)]
    named = [word for word in words if word in SECONDS_OF and word not in AT_THE_END]
    named += [word for word in words[-1:] if word in AT_THE_END]
    if reading.time_scale is None and named and source.number(row, time) is not None:
        scale = SECONDS_OF[named[-1]]
        raise LogFormatError(
            f"a column of times in {UNITS[scale].split()[-1]}, by its name",
            file=source.file,
            field=time,
            expected=f"--time-scale {scale:g}, or --time-scale 1 for seconds",
        )
    return 1.0 if reading.time_scale is None else reading.time_scale


def _counts(
    source: Source, found: Sequence[Row], epoch: str | None, step: str | None
) -> tuple[str, list[float]]:
    at_step = {
        source.number(row, step): row for row in source.rows if {epoch, step} <= {*row.cells}
    }
    at_step.pop(None, None)
    having = [row if epoch in row.cells else at_step.get(source.number(row, step)) for row in found]
    if epoch is None or not any(having):
        if step is None:
            message = "an evaluation without an epoch or a step"
            expected = f"--epoch or --step with one of {names_text(source.names, most=20)}"
            raise LogFormatError(message, file=source.file, expected=expected)
        return step, [source.checked(row, step, 0, MAX_COUNT) for row in found]
    if None in having:
        expected = f"an epoch for each, or --step {step or 'COLUMN'} to count all by steps"
        message = "an evaluation without an epoch, where others have one"
        raise source.fault(found[having.index(None)], epoch, message, expected)
    return epoch, [source.checked(row, epoch, 0, MAX_COUNT) for row in having if row is not None]


def read_csv(
    content: bytes, *, file: str, separators: Sequence[str] = SEPARATORS, fewest: int = 2
) -> Source:
    """Read the rows of a table with a header. Raises LogFormatError naming the line."""
    if not content.strip():
        raise LogFormatError("an empty file", file=file, expected="a header and rows")
    refuse_other_content(content, name=file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")  # As spreadsheets of Windows save CSV.
    text = text.lstrip("# ")  # numpy.savetxt puts a # before the names.
    stated = re.match(r'"?sep=(.)"?\r?\n', text)  # A line of Excel.
    first = re.search(r"[^\r\n]*[^\s][^\r\n]*", text)
    header = re.sub(r'"[^"]*"', "", first[0] if first else "")
    group = next((each for each in separators if set(each) & set(header)), ",")
    separator = stated[1] if stated else max(group, key=header.count)
    csv.field_size_limit(sys.maxsize)  # The module's limit is the process's, and others set it.
    # strict: an open quote would take the rest of the file for one cell.
    table = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        skipinitialspace=separator == " ",
        strict=True,
    )
    try:
        records = (
            (table.line_num, [cell.strip() for cell in cells]) for cells in table if any(cells)
        )
        if stated:
            next(records)
        names = next(records, (1, []))[1]
        is_json = header.lstrip().startswith("{")
        if is_json or not fewest <= len(names) <= MOST_COLUMNS:
            limits = f"{fewest} to {MOST_COLUMNS:,} names"
            expected = f"a header of {limits}, with commas or semicolons between"
            message = (
                "JSON" if is_json else f"{count_text(len(names), 'column')}: {names_text(names)}"
            )
            raise LogFormatError(message, file=file, line=1, expected=expected)
        rows = list(_rows(records, names, file=file))
    except csv.Error as error:
        raise LogFormatError(f"no CSV: {error}", file=file, line=table.line_num) from error
    repeated = frozenset(name for name in names if names.count(name) > 1)
    return Source(file, rows, names, repeated, commas=separator != ",")


def _rows(
    records: Iterator[tuple[int, list[str]]], names: list[str], *, file: str
) -> Iterator[Row]:
    for number, (line, cells) in enumerate(records):
        if number >= MOST_ROWS:
            expected = f"at most {MOST_ROWS:,}"
            raise LogFormatError("too many rows", file=file, line=line, expected=expected)
        if any(cells[len(names) :]):
            expected = f"{len(names)}, as in the header, with numbers such as 0.98"
            raise LogFormatError(f"{len(cells)} cells", file=file, line=line, expected=expected)
        yield Row({name: cell for name, cell in zip(names, cells, strict=False) if cell}, line)


def read_trainer_state(content: bytes, *, file: str) -> Source:
    """Read the entries of the history. Raises LogFormatError for any other file."""
    refuse_other_content(content, name=file)
    document = parse_json(content, file=file)
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        expected = "a trainer_state.json with a log_history"
        raise LogFormatError("no history of a Trainer", file=file, expected=expected)
    rows = [
        Row({name: cell for name, cell in entry.items() if type(cell) in (int, float, str)})
        for entry in history
    ]
    return Source(file, rows, list(dict.fromkeys(name for row in rows for name in row.cells)))

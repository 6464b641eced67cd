"""DAWNBench files: an entry is a JSON and, for training, a TSV of the same name beside it.

Source: dawn-bench-entries README and the entries it published.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from finishline.rules.errors import LogFormatError
from finishline.rules.fields import Fields
from finishline.rules.logs.lines import MAX_MLLOG_LINE_BYTES
from finishline.rules.logs.text import parse_json, refuse_long_lines, refuse_repeated_keys
from finishline.rules.run import Evaluation, Run
from finishline.rules.text import count_text, refuse_utf16

COLUMNS = {
    "top1Accuracy": {"epoch", "hours", "top1Accuracy"},
    "top5Accuracy": {"epoch", "hours", "top1Accuracy", "top5Accuracy"},
    "f1Score": {"epoch", "hours", "f1Score"},
}
LARGEST = {"percent": 100.0, "fraction": 1.0}
MAX_HOURS = 1e6
MAX_ROWS = 100_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)

MAX_ENTRY_BYTES = 1024 * 1024
# Figures beyond these are no measurements, and nothing can be derived from them.
SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS = 1e-6, 1e9
LOWEST_COST_USD, HIGHEST_COST_USD = 1e-12, 1e9
METRICS = {"top1Accuracy": 100.0, "top5Accuracy": 100.0, "f1Score": 1.0}
KNOWN = {
    "version", "author", "authorEmail", "framework", "model", "hardware", "timestamp", "codeURL",
    "costPerHour", "cost", "logFilename", "misc",
}  # fmt: skip
UTF8_MARK = b"\xef\xbb\xbf"

Kind = Literal["train", "inference"]
Report = Callable[[LogFormatError], None]


def parse_curve(content: bytes, *, name: str, metric: str, unit: str) -> Run:
    """The run in a training TSV; `unit` is percent or fraction.

    Columns are read by name and may stand in any order; seconds = hours * 3600, in file order.
    Raises LogFormatError naming file, line, field and expectation.
    """
    problems: list[LogFormatError] = []
    run = read_curve(content, name=name, metric=metric, unit=unit, report=problems.append)
    if run is None:
        raise problems[0]
    return run


def read_curve(content: bytes, *, name: str, metric: str, unit: str, report: Report) -> Run | None:
    """As `parse_curve`, but every problem is reported, and the answer is None if there is one."""
    problems: list[LogFormatError] = []
    evaluations: list[Evaluation] = []
    try:
        refuse_long_lines(content, file=name, limit=MAX_MLLOG_LINE_BYTES)
        if (rows := content.count(b"\n")) > MAX_ROWS:
            expected = f"at most {MAX_ROWS:,} lines"
            raise LogFormatError(f"{rows:,} lines", file=name, expected=expected)
        lines = _utf8(content.removeprefix(UTF8_MARK), name, code="bad_tsv").split("\n")
        while lines and not lines[-1].strip():
            lines.pop()
        header = _header(lines, name, metric)
        if len(lines) == 1:
            raise LogFormatError(
                "no rows below the header", file=name, line=1, expected="evaluations"
            )
        for number, line in enumerate(lines[1:], start=2):
            try:
                evaluations.append(_evaluation(line, number, header, name, metric))
            except LogFormatError as error:
                problems.append(error)
        _refuse_other_figures(evaluations, name, metric, unit)
    except LogFormatError as error:
        problems.append(error)
    for problem in problems:
        problem.code = problem.code or "bad_tsv"
        report(problem)
    return None if problems else Run(name, clock="dawnbench", evaluations=tuple(evaluations))


def _utf8(text: bytes, name: str, *, code: str) -> str:
    refuse_utf16(text, file=name, error=LogFormatError)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise LogFormatError(
            "not UTF-8", file=name, line=line, expected="UTF-8 text", code=code
        ) from error


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")]


def _header(lines: list[str], name: str, metric: str) -> list[str]:
    if metric not in COLUMNS:
        raise LogFormatError(
            f"DAWNBench has no curve of {metric}", file=name, expected=" or ".join(COLUMNS)
        )
    columns = _cells(lines[0]) if lines else []
    if sorted(columns) != sorted(COLUMNS[metric]):
        raise LogFormatError(
            f"the header has {', '.join(repr(column[:40]) for column in columns[:8]) or 'nothing'}",
            file=name,
            line=1,
            field="header",
            expected=", ".join(sorted(COLUMNS[metric])) + ", in any order, with a tab between",
        )
    return columns


def _evaluation(line: str, number: int, header: list[str], name: str, metric: str) -> Evaluation:
    fault = partial(LogFormatError, file=name, line=number)
    cells = _cells(line)
    if len(cells) != len(header):
        expected = f"{count_text(len(header), 'cell')} with a tab between, as in the header"
        raise fault(count_text(len(cells), "cell"), expected=expected)
    row = {}
    for column, cell in zip(header, cells, strict=True):
        row[column] = float(cell) if _NUMBER.fullmatch(cell) else -1.0
        if not 0 <= row[column] < float("inf"):
            expected = "a finite number of at least 0"
            raise fault(f"{cell[:40]!r}", field=column, expected=expected)
    if row["hours"] > MAX_HOURS:
        expected = f"at most {MAX_HOURS:g}"
        raise fault(f"{row['hours']} hours", field="hours", expected=expected)
    return Evaluation(row["epoch"], row["hours"] * 3600, row[metric], line=number)


def _refuse_other_figures(evaluations: list[Evaluation], name: str, metric: str, unit: str) -> None:
    """Raise LogFormatError for hours that decrease, and for qualities in another unit.

    Fractions where percent is the rule show when no value is above 1. Percent shows at the first.
    """
    for earlier, later in itertools.pairwise(evaluations):
        if later.seconds < earlier.seconds:
            raise LogFormatError(
                f"hours went from {earlier.seconds / 3600:g} to {later.seconds / 3600:g}",
                file=name,
                line=later.line,
                field="hours",
                expected="hours that do not decrease",
                code="hours_decrease",
            )
    fault = partial(LogFormatError, file=name, field=metric, code="wrong_unit")
    for each in evaluations:
        if each.quality > LARGEST[unit]:
            expected = f"a {unit} from 0 to {LARGEST[unit]:g}"
            raise fault(f"{each.quality:g}", line=each.line, expected=expected)
    best = max(evaluations, key=lambda each: each.quality, default=None)
    if best is not None and unit == "percent" and best.quality <= 1:
        message = f"no value above {best.quality:g}: fractions where percent is the rule"
        raise fault(message, line=best.line, expected="percent, from 0 to 100")


@dataclass(frozen=True)
class DawnbenchEntry:
    """One entry. `timestamp` is an ISO date; `quality` is in the unit of its metric.

    `cost_usd_per_item`, `latency_ms`, `metric` and `quality` belong to inference and are None in
    training. `misc` and `extra` (every field this class does not know) are kept as they were.
    `flags` lists oddities of the file that are no reason to refuse it.
    """

    version: str
    author: str
    author_email: str
    framework: str
    model: str
    hardware: str
    timestamp: str
    code_url: str | None
    cost_usd_per_hour: float | None
    cost_usd_per_item: float | None
    log_file_name: str | None
    misc: dict[str, Any] | str | None
    extra: dict[str, Any]
    flags: tuple[str, ...]
    latency_ms: float | None = None
    metric: str | None = None
    quality: float | None = None


def parse_entry(
    content: bytes, *, name: str, kind: Kind | None = None, metric: str | None = None
) -> DawnbenchEntry:
    """The entry in a JSON file.

    Without `kind` an entry with a latency is of inference; `metric` is the one an inference entry
    must have, any of the three if None. Raises LogFormatError naming file, line, field and
    expectation.
    """
    problems: list[LogFormatError] = []
    entry = read_entry(content, name=name, kind=kind, metric=metric, report=problems.append)
    if entry is None:
        raise problems[0]
    return entry


def read_entry(
    content: bytes, *, name: str, kind: Kind | None = None, metric: str | None = None,
    report: Report,
) -> DawnbenchEntry | None:  # fmt: skip
    """As `parse_entry`, but every problem is reported, and the answer is None if there is one."""
    text = content.removeprefix(UTF8_MARK)
    try:
        table = _table(text, name)
    except LogFormatError as error:
        report(error)
        return None
    inference = kind == "inference" or (kind is None and table.has("latency"))
    values: dict[str, Any] = {}
    readers = READERS
    if inference:
        measured: Callable[[Fields], Any] = partial(_quality, metric=metric)
        readers = {"latency_ms": _latency_ms, "measured": measured, **READERS}
    for field, read in readers.items():
        try:
            values[field] = read(table)
        except LogFormatError as error:
            found = re.search(rb'"%b"\s*:' % re.escape((error.field or "").encode()), text)
            error.line = text.count(b"\n", 0, found.start()) + 1 if found else error.line
            error.code = _code(error)
            report(error)
    if len(values) < len(readers):
        return None
    logged, quality = values.pop("measured", (None, None))
    flags = {
        "json_bom": content.startswith(UTF8_MARK),
        "json_crlf": b"\r\n" in content,
        "json_non_ascii": not text.isascii(),
    }
    if logged is not None and quality > METRICS[logged]:
        quality, flags["f1_score_in_percent"] = quality / 100, True
    fields = dict(table.items())
    known = KNOWN | ({"latency", *METRICS} if inference else set())
    extra = {field: value for field, value in fields.items() if field not in known}
    flags[f"extra_fields:{','.join(sorted(extra))}"] = bool(extra)
    cost = "cost" if inference else "costPerHour"
    flags["cost_absent"] = cost not in fields
    flags["cost_null"] = cost in fields and fields[cost] is None
    told = tuple(flag for flag, is_so in flags.items() if is_so)
    return DawnbenchEntry(**values, metric=logged, quality=quality, extra=extra, flags=told)


def _table(text: bytes, name: str) -> Fields:
    if len(text) > MAX_ENTRY_BYTES:
        expected = f"at most {MAX_ENTRY_BYTES:,} bytes"
        raise LogFormatError(f"{len(text):,} bytes", file=name, expected=expected)
    _utf8(text, name, code="not_utf8")
    table = parse_json(text, file=name)
    refuse_repeated_keys(text, file=name)
    return Fields(table, file=name, error=LogFormatError)


def _latency_ms(table: Fields) -> float:
    return table.number("latency", minimum=SHORTEST_LATENCY_MS, maximum=LONGEST_LATENCY_MS)


def _cost_usd(table: Fields, name: str) -> float | None:
    """US dollars; 0 is allowed: the machine may have been free of charge."""
    cost = table.optional_number(name, minimum=0.0, maximum=HIGHEST_COST_USD)
    if cost and cost < LOWEST_COST_USD:
        expected = f"0, or a number of {LOWEST_COST_USD:g} to {HIGHEST_COST_USD:g}"
        raise table.fail(name, f"got {cost:g}", expected=expected)
    return cost


def _quality(table: Fields, metric: str | None) -> tuple[str, float]:
    """Metric and quality as they stand there; an F1 score in percent is the one exception."""
    metrics = (metric,) if metric is not None else tuple(METRICS)
    name = next((name for name in metrics if table.has(name)), None)
    if name is None:
        raise table.fail(metrics[0], "missing", expected=" or ".join(metrics))
    quality = table.number(name, minimum=0.0, maximum=100.0)
    if METRICS[name] == 100.0 and quality <= 1.0:
        message = f"{quality:g}, a fraction where percent is the rule"
        raise table.fail(name, message, expected="percent")
    return name, quality


def _iso_date(table: Fields) -> str:
    text = table.text("timestamp")
    try:
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise table.fail("timestamp", f"{text[:60]!r}", expected="a date as 2018-04-20") from None
    return moment.date().isoformat()


def _text_or_none(table: Fields, name: str) -> str | None:
    """As `optional_text`; an empty text is as good as none."""
    return None if table.raw(name) == "" else table.optional_text(name)


def _misc(table: Fields) -> dict[str, Any] | str | None:
    misc = table.raw("misc")
    if misc is None or isinstance(misc, dict | str):
        return misc
    raise table.fail("misc", f"a {type(misc).__name__}", expected="an object or a text")


READERS: dict[str, Callable[[Fields], Any]] = {
    "version": lambda table: table.choice("version", ("v1.0",)),
    "author": lambda table: table.text("author"),
    "author_email": lambda table: table.text("authorEmail"),
    "framework": lambda table: table.text("framework"),
    "model": lambda table: table.text("model"),
    "hardware": lambda table: table.text("hardware"),
    "timestamp": _iso_date,
    "code_url": lambda table: _text_or_none(table, "codeURL"),
    "cost_usd_per_hour": lambda table: _cost_usd(table, "costPerHour"),
    "cost_usd_per_item": lambda table: _cost_usd(table, "cost"),
    "log_file_name": lambda table: _text_or_none(table, "logFilename"),
    "misc": _misc,
}


def _code(error: LogFormatError) -> str:
    if error.message.startswith("missing"):
        return "missing_field"
    if error.message.startswith("text ") and (error.expected or "").startswith("a number"):
        return "number_as_string"
    return f"bad_{error.field}" if error.field in ("version", "timestamp", "misc") else "bad_value"

"""Read DAWNBench files: an entry is a JSON and, for training, a TSV of the same name.

Source: dawn-bench-entries README and the entries it published.
"""

import itertools
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from finishline.rules.errors import LogFormatError, RuleError, joined
from finishline.rules.logs.lines import MAX_MLLOG_LINE_BYTES, is_number
from finishline.rules.logs.text import (
    parse_json_object,
    refuse_long_lines,
    refuse_repeated_keys,
)
from finishline.rules.run import Evaluation, Run
from finishline.rules.table import STRICT, Checked, FieldError, Text, read_table
from finishline.rules.text import count_text, refuse_utf16, shown

COLUMNS = {
    "top1Accuracy": {"epoch", "hours", "top1Accuracy"},
    "top5Accuracy": {"epoch", "hours", "top1Accuracy", "top5Accuracy"},
    "f1Score": {"epoch", "hours", "f1Score"},
}
LARGEST = {"percent": 100.0, "fraction": 1.0}
MAX_HOURS = 1e6
MAX_ROWS = 100_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)

# Figures beyond these are errors rather than measurements.
SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS = 1e-6, 1e9
LOWEST_COST_USD, HIGHEST_COST_USD = 1e-12, 1e9
METRICS = {"top1Accuracy": 100.0, "top5Accuracy": 100.0, "f1Score": 1.0}
KNOWN = {
    "version", "author", "authorEmail", "framework", "model", "hardware", "timestamp", "codeURL",
    "costPerHour", "cost", "logFilename", "misc",
}  # fmt: skip
UTF8_MARK = b"\xef\xbb\xbf"

Kind = Literal["train", "inference"]


def parse_curve(content: bytes, *, name: str, metric: str, unit: str) -> Run:
    """Read the run in a training TSV. `unit` is percent or fraction.

    Columns are read by name, in any order. seconds = hours * 3600, in file order. Raises a
    RuleError of every problem, with file, line, field and expectation.
    """
    problems: list[RuleError] = []
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
    if problems:
        raise joined(problems)
    return Run(name, clock="dawnbench", evaluations=tuple(evaluations))


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

    Fractions in place of percent show when every value is at most 1. Percent shows at the first.
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


NAMES = {
    "author_email": "authorEmail", "code_url": "codeURL", "cost_usd_per_hour": "costPerHour",
    "cost_usd_per_item": "cost", "log_file_name": "logFilename", "latency_ms": "latency",
}  # fmt: skip


def _iso_date(text: str) -> str:
    try:
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise FieldError(f"got {shown(text)}", expected="a date as 2018-04-20") from None
    return moment.date().isoformat()


def _cost(dollars: float) -> float:
    """Check US dollars. 0 is allowed: the machine may have been free of charge."""
    if 0 < dollars < LOWEST_COST_USD:
        expected = f"0, or a number of {LOWEST_COST_USD:g} to {HIGHEST_COST_USD:g}"
        raise FieldError(f"got {dollars:g}", expected=expected)
    return dollars


def _misc(value: Any) -> dict[str, Any] | str | None:
    if value is None or isinstance(value, dict | str):
        return value
    raise FieldError(f"got {shown(value)}", expected="an object or a text")


Cost = Annotated[float, Ge(0), Le(HIGHEST_COST_USD), Checked(_cost)]


@dataclass(frozen=True)
class EntryTable:
    """The known fields of an entry's JSON. `timestamp` is an ISO date."""

    __pydantic_config__ = STRICT | {
        "extra": "ignore",
        "alias_generator": lambda name: NAMES.get(name, name),
    }
    version: Literal["v1.0"]
    author: Text
    author_email: Text
    framework: Text
    model: Text
    hardware: Text
    timestamp: Annotated[Text, Checked(_iso_date)]
    code_url: Text | None = None
    cost_usd_per_hour: Cost | None = None
    cost_usd_per_item: Cost | None = None
    log_file_name: Text | None = None
    misc: Annotated[Any, Checked(_misc)] = None
    latency_ms: Annotated[float, Ge(SHORTEST_LATENCY_MS), Le(LONGEST_LATENCY_MS)] | None = None


@dataclass(frozen=True, kw_only=True)
class DawnbenchEntry(EntryTable):
    """One entry. `quality` is in the unit of its metric.

    `cost_usd_per_item`, `latency_ms`, `metric` and `quality` belong to inference and are None in
    training. `misc` and `extra` (every unknown field) are kept as they were. `flags` lists harmless
    oddities of the file.
    """

    extra: dict[str, Any]
    flags: tuple[str, ...]
    metric: str | None = None
    quality: float | None = None


def parse_entry(
    content: bytes, *, name: str, kind: Kind | None = None, metric: str | None = None
) -> DawnbenchEntry:
    """Read the entry in a JSON file.

    Without `kind` an entry with a latency is of inference. An inference entry must have `metric`,
    or any of the three if it is None. Raises a RuleError of every problem, with file, line, field
    and expectation.
    """
    text = content.removeprefix(UTF8_MARK)
    _utf8(text, name, code="not_utf8")
    fields = parse_json_object(text, file=name)
    refuse_repeated_keys(text, file=name)
    inference = kind == "inference" or (kind is None and fields.get("latency") is not None)
    problems: list[RuleError] = []
    values: dict[str, Any] = {}
    logged, quality = None, 0.0
    # The latency of a training is a field like any other. An empty address counts as absent.
    empty = {key for key in ("codeURL", "logFilename") if fields.get(key) == ""}
    stated = {key: each for key, each in fields.items() if key not in empty and each is not None}
    if not inference:
        stated.pop("latency", None)
    elif "latency" not in stated:
        expected = f"milliseconds, at least {SHORTEST_LATENCY_MS:g}"
        problems.append(LogFormatError("missing", file=name, field="latency", expected=expected))
    try:
        values = dict(vars(read_table(EntryTable, stated, file=name, error=LogFormatError)))
    except RuleError as error:
        problems += error.problems
    try:
        if inference:
            logged, quality = _quality(fields, metric, file=name)
    except LogFormatError as error:
        problems.append(error)
    for each in problems:
        found = re.search(rb'"%b"\s*:' % re.escape((each.field or "").encode()), text)
        each.line = text.count(b"\n", 0, found.start()) + 1 if found else each.line
        each.code = _code(each)
    if problems:
        raise joined(problems)
    flags = {
        "json_bom": content.startswith(UTF8_MARK),
        "json_crlf": b"\r\n" in content,
        "json_non_ascii": not text.isascii(),
    }
    if logged is not None and quality > METRICS[logged]:
        quality, flags["f1_score_in_percent"] = quality / 100, True
    known = KNOWN | ({"latency", *METRICS} if inference else set())
    extra = {field: value for field, value in fields.items() if field not in known}
    flags[f"extra_fields:{','.join(sorted(extra))}"] = bool(extra)
    cost = "cost" if inference else "costPerHour"
    flags["cost_absent"] = cost not in fields
    flags["cost_null"] = cost in fields and fields[cost] is None
    told = tuple(flag for flag, is_so in flags.items() if is_so)
    values |= {"metric": logged, "quality": quality} if inference else {}
    return DawnbenchEntry(**values, extra=extra, flags=told)


def _quality(fields: dict[str, Any], metric: str | None, *, file: str) -> tuple[str, float]:
    """Return metric and quality as stated. Only an F1 score may be in percent."""
    metrics = (metric,) if metric is not None else tuple(METRICS)
    name = next((name for name in metrics if fields.get(name) is not None), metrics[0])
    quality, wrong = fields.get(name), partial(LogFormatError, file=file, field=name)
    if quality is None:
        raise wrong("missing", expected=" or ".join(metrics))
    if not is_number(quality) or not 0 <= quality <= 100:
        raise wrong(f"got {shown(quality)}", expected="a number from 0 to 100")
    if METRICS[name] == 100.0 and quality <= 1.0:
        raise wrong(f"{quality:g}, a fraction where percent is the rule", expected="percent")
    return name, float(quality)


def _code(error: RuleError) -> str:
    if error.message.startswith("missing"):
        return "missing_field"
    if error.message.startswith(("got '", 'got "')) and (error.expected or "").startswith("a num"):
        return "number_as_string"
    return f"bad_{error.field}" if error.field in ("version", "timestamp", "misc") else "bad_value"

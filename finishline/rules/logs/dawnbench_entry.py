"""The JSON of a DAWNBench entry: submitter, model, hardware and price."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from finishline.rules.errors import LogFormatError
from finishline.rules.fields import Fields
from finishline.rules.logs.text import parse_json, refuse_repeated_keys
from finishline.rules.text import refuse_utf16

MAX_ENTRY_BYTES = 1024 * 1024
# Figures beyond these are no measurements, and nothing can be derived from them.
SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS = 1e-6, 1e9
LOWEST_COST_USD, HIGHEST_COST_USD = 1e-12, 1e9
METRICS = {"top1Accuracy": 100.0, "top5Accuracy": 100.0, "f1Score": 1.0}
KNOWN = {
    "version",
    "author",
    "authorEmail",
    "framework",
    "model",
    "hardware",
    "timestamp",
    "codeURL",
    "costPerHour",
    "cost",
    "logFilename",
    "misc",
}
UTF8_MARK = b"\xef\xbb\xbf"


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
    latency_ms: float | None
    metric: str | None
    quality: float | None
    log_file_name: str | None
    misc: dict[str, Any] | str | None
    extra: dict[str, Any]
    flags: tuple[str, ...]


def parse_entry(
    content: bytes,
    *,
    name: str,
    kind: Literal["train", "inference"] | None = None,
    metric: str | None = None,
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
    content: bytes,
    *,
    name: str,
    kind: Literal["train", "inference"] | None = None,
    metric: str | None = None,
    report: Callable[[LogFormatError], None],
) -> DawnbenchEntry | None:
    """As `parse_entry`, but every problem is reported, and the answer is None if there is one."""
    text = content.removeprefix(UTF8_MARK)
    try:
        table = _read_fields(text, name)
    except LogFormatError as error:
        report(error)
        return None
    inference = kind == "inference" or (kind is None and table.has("latency"))
    values: dict[str, Any] = {}
    readers: dict[str, Callable[[Fields], Any]] = _READERS
    if inference:
        measured = {"latency_ms": _latency_ms, "quality": lambda table: _quality(table, metric)}
        readers = measured | _READERS
    for field, read in readers.items():
        try:
            values[field] = read(table)
        except LogFormatError as error:
            _add_line(error, text)
            error.code = _code(error)
            report(error)
    if len(values) < len(readers):
        return None
    return _entry(values, table, content, inference=inference)


def _read_fields(text: bytes, name: str) -> Fields:
    if len(text) > MAX_ENTRY_BYTES:
        raise LogFormatError(
            f"{len(text):,} bytes", file=name, expected=f"at most {MAX_ENTRY_BYTES:,} bytes"
        )
    refuse_utf16(text, file=name, error=LogFormatError)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise LogFormatError(
            "not UTF-8", file=name, line=line, expected="UTF-8 text", code="not_utf8"
        ) from error
    table = parse_json(text, file=name)
    refuse_repeated_keys(text, file=name)
    return Fields(table, file=name, error=LogFormatError)


def _entry(
    values: dict[str, Any], table: Fields, content: bytes, *, inference: bool
) -> DawnbenchEntry:
    flags = _flags(content)
    measured, quality = values.pop("quality", (None, None))
    if measured is not None and quality > METRICS[measured]:
        quality, flags = quality / 100, (*flags, "f1_score_in_percent")
    extra = _extra(table, inference=inference)
    if extra:
        flags = (*flags, f"extra_fields:{','.join(sorted(extra))}")
    return DawnbenchEntry(
        **({"latency_ms": None} | values),
        metric=measured,
        quality=quality,
        extra=extra,
        flags=(*flags, *_cost_flags(table, "cost" if inference else "costPerHour")),
    )


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
        raise table.fail(
            name, f"{quality:g}, a fraction where percent is the rule", expected="percent"
        )
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
    values = dict(table.items())
    return None if values.get(name) == "" else table.optional_text(name)


def _misc(table: Fields) -> dict[str, Any] | str | None:
    misc = dict(table.items()).get("misc")
    if misc is None or isinstance(misc, dict | str):
        return misc
    raise table.fail("misc", f"a {type(misc).__name__}", expected="an object or a text")


def _extra(table: Fields, *, inference: bool) -> dict[str, Any]:
    known = KNOWN | ({"latency", *METRICS} if inference else set())
    return {name: value for name, value in table.items() if name not in known}


def _flags(content: bytes) -> tuple[str, ...]:
    odd = {
        "json_bom": content.startswith(UTF8_MARK),
        "json_crlf": b"\r\n" in content,
        "json_non_ascii": not content.removeprefix(UTF8_MARK).isascii(),
    }
    return tuple(flag for flag, is_so in odd.items() if is_so)


def _cost_flags(table: Fields, name: str) -> tuple[str, ...]:
    values = dict(table.items())
    if name not in values:
        return ("cost_absent",)
    return ("cost_null",) if values[name] is None else ()


def _add_line(error: LogFormatError, text: bytes) -> None:
    """Give the error the line its field stands on, if the text has the field."""
    if error.line is None and error.field is not None:
        found = re.search(rb'"' + re.escape(error.field.encode()) + rb'"\s*:', text)
        if found is not None:
            error.line = text.count(b"\n", 0, found.start()) + 1


def _code(error: LogFormatError) -> str:
    if error.message.startswith("missing"):
        return "missing_field"
    if error.field == "version":
        return "bad_version"
    if error.message.startswith("text ") and (error.expected or "").startswith("a number"):
        return "number_as_string"
    return f"bad_{error.field}" if error.field in ("timestamp", "misc") else "bad_value"


_READERS: dict[str, Callable[[Fields], Any]] = {
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

"""The JSON of a DAWNBench entry: who trained what on which hardware, at which price."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rules.errors import LogFormatError
from rules.fields import Fields
from rules.logs.json_text import parse_json, refuse_repeated_keys

MAX_ENTRY_BYTES = 1024 * 1024
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
    `flags` tells what is odd about the file but no reason to refuse it.
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
    must have, any of the three if None. Raises LogFormatError naming file, line, field and what
    was expected.
    """
    text = content.removeprefix(UTF8_MARK)
    try:
        return _read_entry(_read_fields(text, name), content, kind, metric)
    except LogFormatError as error:
        _add_line(error, text)
        raise


def _read_fields(text: bytes, name: str) -> Fields:
    if len(text) > MAX_ENTRY_BYTES:
        raise LogFormatError(
            f"{len(text):,} bytes", file=name, expected=f"at most {MAX_ENTRY_BYTES:,} bytes"
        )
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise LogFormatError("not UTF-8", file=name, line=line, expected="UTF-8 text") from error
    table = parse_json(text, file=name)
    refuse_repeated_keys(text, file=name)
    return Fields(table, file=name, error=LogFormatError)


def _read_entry(
    table: Fields,
    content: bytes,
    kind: Literal["train", "inference"] | None,
    metric: str | None,
) -> DawnbenchEntry:
    inference = kind == "inference" or (kind is None and table.has("latency"))
    latency_ms, measured, quality, flags = None, None, None, _flags(content)
    if inference:
        latency_ms = _latency_ms(table)
        measured, quality = _quality(table, metric)
        if quality > METRICS[measured]:
            quality, flags = quality / 100, (*flags, "f1_score_in_percent")
    extra = _extra(table, inference=inference)
    if extra:
        flags = (*flags, f"extra_fields:{','.join(sorted(extra))}")
    return DawnbenchEntry(
        version=table.choice("version", ("v1.0",)),
        author=table.text("author"),
        author_email=table.text("authorEmail"),
        framework=table.text("framework"),
        model=table.text("model"),
        hardware=table.text("hardware"),
        timestamp=_iso_date(table),
        code_url=_text_or_none(table, "codeURL"),
        cost_usd_per_hour=table.optional_number("costPerHour", minimum=0.0),
        cost_usd_per_item=table.optional_number("cost", minimum=0.0),
        latency_ms=latency_ms,
        metric=measured,
        quality=quality,
        log_file_name=_text_or_none(table, "logFilename"),
        misc=_misc(table),
        extra=extra,
        flags=(*flags, *_cost_flags(table, "cost" if inference else "costPerHour")),
    )


def _latency_ms(table: Fields) -> float:
    latency_ms = table.number("latency", minimum=0.0)
    if latency_ms == 0.0:
        raise table.fail("latency", "got 0", expected="milliseconds for one item, above 0")
    return latency_ms


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

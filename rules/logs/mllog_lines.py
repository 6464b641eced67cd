"""The lines of an MLPerf log as typed records."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from rules.errors import LogFormatError
from rules.logs.json_text import parse_json, refuse_repeated_keys
from rules.logs.lines import mllog_lines

MAX_TIME_MS = 1e14  # The year 5138.
MAX_KEY_LENGTH = 100


class MllogRecord(NamedTuple):
    """One MLLOG line; `time_ms` is a finite count of milliseconds since 1970."""

    line: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any]
    point_in_time: bool


def read_mllog(content: bytes, *, file: str, counted_keys: frozenset[str]) -> Iterator[MllogRecord]:
    """Every MLLOG line of a log, in order.

    Lines whose key is in `counted_keys` may not hold a key twice; nor may a line that tries to
    have two readings as to which key it has. Raises LogFormatError with file, line and field.
    """
    for line, text in mllog_lines(content, file=file):
        table = parse_json(text, file=file, line=line)
        record = _record(table, file=file, line=line)
        if record.key in counted_keys or text.count(b'"key"') != 1 or b"\\" in text:
            refuse_repeated_keys(text, file=file, line=line)
        yield record


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number; true and false are none."""
    return type(value) is float or type(value) is int


def _record(table: Any, *, file: str, line: int) -> MllogRecord:
    if type(table) is not dict:
        raise _problem("an MLLOG line without an object", None, "a JSON object", file, line)
    key, time_ms, metadata = table.get("key"), table.get("time_ms"), table.get("metadata")
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_LENGTH:
        expected = f"a text of 1 to {MAX_KEY_LENGTH} characters"
        raise _problem("no key", "key", expected, file, line)
    if not is_number(time_ms) or not 0 <= time_ms <= MAX_TIME_MS:
        expected = "milliseconds since 1970, a number of at least 0"
        raise _problem(f"got {repr(time_ms)[:60]}", "time_ms", expected, file, line)
    if metadata is None:
        metadata = {}
    if type(metadata) is not dict:
        raise _problem(f"got {repr(metadata)[:60]}", "metadata", "a JSON object", file, line)
    point_in_time = table.get("event_type") == "POINT_IN_TIME"
    return MllogRecord(line, key, time_ms, table.get("value"), metadata, point_in_time)


def _problem(
    message: str, field: str | None, expected: str, file: str, line: int
) -> LogFormatError:
    return LogFormatError(message, file=file, line=line, field=field, expected=expected)

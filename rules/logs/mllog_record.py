"""One MLLOG line as a typed record."""

from functools import partial
from typing import Any, NamedTuple, TypeGuard

import orjson

from rules.errors import LogFormatError
from rules.logs.blocks import MAX_MLLOG_LINE_BYTES, Block
from rules.logs.json_text import parse_json, refuse_repeated_keys

MAX_TIME_MS = 1e14  # The year 5138.
MAX_KEY_LENGTH = 100


class MllogRecord(NamedTuple):
    """One MLLOG line; `time_ms` is a finite count of milliseconds since 1970."""

    block: Block
    offset: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any]
    point_in_time: bool

    def line(self) -> int:
        """The number of the line, which takes some counting."""
        return self.block.line_at(self.offset)


# The constructor of a named tuple is a function in Python, that of a tuple is none.
record_of = partial(tuple.__new__, MllogRecord)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number; true and false are none."""
    return type(value) is float or type(value) is int


def read_record(
    text: bytes, block: Block, offset: int, *, counted_keys: frozenset[str]
) -> MllogRecord:
    """The record of one line. Raises LogFormatError, without file and line."""
    record = _sound_record(text, block, offset)
    if record is None:
        return _read_odd_line(text, block, offset, counted_keys=counted_keys)
    return record


def _sound_record(text: bytes, block: Block, offset: int) -> MllogRecord | None:
    """The record of a line that a quick look finds in order; None for one to look at closely.

    Each key is followed by a colon, so a line with no more colons than keys repeats none.
    """
    if len(text) > MAX_MLLOG_LINE_BYTES or b"[" in text:
        return None
    try:
        table = orjson.loads(text)
        key, time_ms, metadata = table["key"], table["time_ms"], table["metadata"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    if (
        type(key) is not str
        or not 0 < len(key) <= MAX_KEY_LENGTH
        or not (type(time_ms) is int or type(time_ms) is float)
        or not 0 <= time_ms <= MAX_TIME_MS
        or type(metadata) is not dict
        or text.count(b":") != len(table) + len(metadata)
    ):
        return None
    point_in_time = table.get("event_type") == "POINT_IN_TIME"
    return record_of((block, offset, key, time_ms, table.get("value"), metadata, point_in_time))


def _read_odd_line(
    text: bytes, block: Block, offset: int, *, counted_keys: frozenset[str]
) -> MllogRecord:
    if len(text) > MAX_MLLOG_LINE_BYTES:
        expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
        message = f"an MLLOG line of more than {MAX_MLLOG_LINE_BYTES:,} bytes"
        raise line_error(message, None, expected, "long_line")
    record = _record(parse_json(text, file=""), block, offset)
    if record.key in counted_keys or text.count(b'"key"') != 1 or b"\\" in text:
        refuse_repeated_keys(text, file="")
    return record


def _record(table: Any, block: Block, offset: int) -> MllogRecord:
    if type(table) is not dict:
        raise line_error("an MLLOG line without an object", None, "a JSON object")
    key, time_ms, metadata = table.get("key"), table.get("time_ms"), table.get("metadata")
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_LENGTH:
        expected = f"a text of 1 to {MAX_KEY_LENGTH} characters"
        raise line_error("no key", "key", expected)
    if not is_number(time_ms) or not 0 <= time_ms <= MAX_TIME_MS:
        expected = "milliseconds since 1970, a number of at least 0"
        raise line_error(f"got {repr(time_ms)[:60]}", "time_ms", expected)
    if metadata is None:
        metadata = {}
    if type(metadata) is not dict:
        raise line_error(f"got {repr(metadata)[:60]}", "metadata", "a JSON object")
    point_in_time = table.get("event_type") == "POINT_IN_TIME"
    return record_of((block, offset, key, time_ms, table.get("value"), metadata, point_in_time))


def line_error(
    message: str,
    field: str | None,
    expected: str,
    code: str = "bad_line",
    file: str | None = None,
    record: MllogRecord | None = None,
) -> LogFormatError:
    line = record.line() if record else None
    return LogFormatError(message, file=file, line=line, field=field, expected=expected, code=code)

"""One line of an MLPerf log, decoded."""

from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import orjson

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.text import (
    MAX_MLLOG_LINE_BYTES,
    Block,
    parse_json,
    refuse_repeated_keys,
)

MAX_TIME_MS = 1e14  # The year 5138.
EARLIEST_TIME_MS = 1_262_304_000_000  # 2010, years before the first log of MLPerf.
LATEST_TIME_MS = 4_102_444_800_000  # 2100.
A_TIME = "milliseconds since 1970, such as 1790000000000"
MAX_KEY_LENGTH = 100


class MllogRecord(NamedTuple):
    """One line of a log. `time_ms` is a finite count of milliseconds since 1970."""

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


# The constructor of a named tuple is a function in Python, and that of a tuple is none.
record_of = partial(tuple.__new__, MllogRecord)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number. True and false are none."""
    return type(value) is float or type(value) is int


def read_record(text: bytes, block: Block, offset: int) -> MllogRecord:
    """The record in the text after `:::MLLOG`. Raises LogFormatError without file and line."""
    if len(text) > MAX_MLLOG_LINE_BYTES:
        refuse_long(text)
    try:
        table = orjson.loads(text)
    except orjson.JSONDecodeError:
        table = parse_json(text, file="")
    if type(table) is not dict:
        raise line_error("an MLLOG line without an object", None, "a JSON object")
    key, time_ms, metadata = table.get("key"), table.get("time_ms"), table.get("metadata", {})
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_LENGTH:
        expected = f"a text of 1 to {MAX_KEY_LENGTH} characters"
        raise line_error("no key", "key", expected)
    if not is_number(time_ms) or not 0 <= time_ms <= MAX_TIME_MS:
        raise line_error(f"got {repr(time_ms)[:60]}{unit_hint(time_ms)}", "time_ms", A_TIME)
    if metadata is None:
        metadata = {}
    if type(metadata) is not dict:
        raise line_error(f"got {repr(metadata)[:60]}", "metadata", "a JSON object")
    # Each key is followed by a colon, so a line with no more colons than keys repeats none,
    # and one without a list is not deep.
    if b"[" in text or text.count(b":") != len(table) + len(metadata):
        parse_json(text, file="")
        refuse_repeated_keys(text, file="")
    point_in_time = table.get("event_type") == "POINT_IN_TIME"
    return record_of((block, offset, key, time_ms, table.get("value"), metadata, point_in_time))


def unit_hint(time: object) -> str:
    """Ask for the unit of a time that would be a moment of today's logs in another one."""
    for unit, milliseconds in (("seconds", 1e3), ("microseconds", 1e-3), ("nanoseconds", 1e-6)):
        first, last = EARLIEST_TIME_MS / milliseconds, LATEST_TIME_MS / milliseconds
        if is_number(time) and first <= time <= last:
            return f": are these {unit}?"
    return ""


def day_of_time(time_ms: float) -> str:
    """The day of a time, as 2026-11-28."""
    return str(datetime.fromtimestamp(time_ms / 1000, UTC).date())


def refuse_long(text: bytes) -> None:
    """Raise LogFormatError if a line is longer than any line of a logger."""
    if len(text) > MAX_MLLOG_LINE_BYTES:
        expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
        message = f"an MLLOG line of more than {MAX_MLLOG_LINE_BYTES:,} bytes"
        raise line_error(message, None, expected, "long_line")


def line_error(
    message: str, field: str | None, expected: str, code: str = "bad_line"
) -> LogFormatError:
    """What is wrong with a line, without its file and number."""
    return LogFormatError(message, field=field, expected=expected, code=code)

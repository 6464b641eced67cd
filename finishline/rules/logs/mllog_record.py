"""One line of an MLLOG file, decoded: the record that it holds, alone or many at once."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeGuard, final

import orjson

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.text import (
    MAX_MLLOG_LINE_BYTES,
    Block,
    parse_json,
    refuse_repeated_keys,
    replace_bad_bytes,
    with_finite_numbers,
)

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
    try:
        table = parse_json(text, file="")
    except LogFormatError as error:
        if error.code == "not_finite" and not _counts(text, counted_keys):
            error.code = "bad_json"
        raise
    record = _record(table, block, offset)
    if record.key in counted_keys or text.count(b'"key"') != 1 or b"\\" in text:
        refuse_repeated_keys(text, file="")
    return record


def _counts(text: bytes, keys: frozenset[str]) -> bool:
    """Whether a line that is JSON but for its numbers has one of some keys."""
    table = orjson.loads(with_finite_numbers(replace_bad_bytes(text)))
    key = table.get("key") if type(table) is dict else None
    return type(key) is str and key in keys


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


# All within the limits of records and measurements; a longer number is for other readers.
_TIME = rb"([0-9]{1,14}(?:\.[0-9]{1,9})?)"
_METADATA = rb'("epoch_num":([0-9]{1,9}\.[0-9]{1,9}),"samples_count":([0-9]{1,14}))'
_QUALITY = rb"([0-9]{1,9}\.[0-9]{1,17})"
_LINE = (
    rb' \{"namespace":"","time_ms":TIME,"event_type":"%b","key":"%b","value":%b,'
    rb'"metadata":\{%b\}\}(?![^\n])'
).replace(b"TIME", _TIME)

# Text after the mark of the first line.
WHOLE_EVALUATION = rb"\n:::MLLOG".join(
    _LINE % line
    for line in (
        (b"INTERVAL_START", b"eval_start", b"null", _METADATA),
        (b"POINT_IN_TIME", b"eval_accuracy", _QUALITY, rb"\2"),
        (b"INTERVAL_END", b"eval_stop", b"null", rb"\2"),
    )
)
_NUMBERS = (1, 3, 4, 5, 6, 7)  # Its groups but the second, which is the metadata.


@final
class WholeEvaluation(NamedTuple):
    """The three lines of an evaluation; its times are milliseconds since 1970."""

    block: Block
    offset: int
    start_ms: float
    epoch: float
    samples: int
    time_ms: float
    quality: float
    stop_ms: float

    def line(self) -> int:
        """The number of the line that has the quality."""
        return self.block.line_at(self.offset) + 1

    def records(self) -> list[MllogRecord]:
        """The lines one by one."""
        block, first = self.block, self.offset
        second = block.content.index(b"\n", first) + 1
        third = block.content.index(b"\n", second) + 1
        place = {"epoch_num": self.epoch, "samples_count": self.samples}
        return [
            MllogRecord(block, first, "eval_start", self.start_ms, None, place, False),
            MllogRecord(block, second, "eval_accuracy", self.time_ms, self.quality, place, True),
            MllogRecord(block, third, "eval_stop", self.stop_ms, None, place, False),
        ]


_evaluation_of = partial(tuple.__new__, WholeEvaluation)
MllogItem = MllogRecord | WholeEvaluation


def read_whole_evaluations(
    found: Sequence[re.Match[bytes]], block: Block
) -> list[WholeEvaluation] | None:
    """Evaluations that WHOLE_EVALUATION found in a block; None if a number is no JSON number."""
    rows = b",".join([b"[%b,%b,%b,%b,%b,%b]" % match.group(*_NUMBERS) for match in found])
    try:
        numbers = orjson.loads(b"[" + rows + b"]")
    except orjson.JSONDecodeError:
        return None
    return [
        _evaluation_of((block, match.start(), *row))
        for match, row in zip(found, numbers, strict=True)
    ]


_LINES = re.compile(rb":::MLLOG(?:" + WHOLE_EVALUATION + rb"|(.*+))")
_TEXT = _LINES.groups  # The group of any other line: the text after its mark.


def read_at_once(block: Block) -> list[MllogItem] | None:
    """All MLLOG lines of a block in their order, None if one needs reading by `read_record`.

    `read_record` gives the same records, line by line.
    """
    if b"\r" in block.content:  # It ends a line too.
        return None
    found = list(_LINES.finditer(block.content))
    records = _records([line for line in found if line.lastindex == _TEXT], block)
    evaluations = read_whole_evaluations([each for each in found if each.lastindex != _TEXT], block)
    if records is None or evaluations is None:
        return None
    single: Iterator[MllogItem] = iter(records)
    whole: Iterator[MllogItem] = iter(evaluations)
    return [next(single if each.lastindex == _TEXT else whole) for each in found]


def _records(lines: Sequence[re.Match[bytes]], block: Block) -> list[MllogRecord] | None:
    texts = [line[_TEXT] for line in lines]
    joined = b",\n".join(texts)
    tables = _tables(texts, joined)
    if tables is None:
        return None
    try:
        keys = [table["key"] for table in tables]
        times = [table["time_ms"] for table in tables]
        metadata = [table["metadata"] for table in tables]
        sound = _are_keys(set(keys)) and _are_times(times) and set(map(type, metadata)) <= {dict}
    except (LookupError, TypeError):
        return None
    # Each key is followed by a colon: no more colons than keys in all, and no line repeats one.
    if not sound or joined.count(b":") != sum(map(len, tables)) + sum(map(len, metadata)):
        return None
    offsets = [line.start() for line in lines]
    values = [table.get("value") for table in tables]
    points = [table.get("event_type") == "POINT_IN_TIME" for table in tables]
    return list(map(record_of, zip(repeat(block), offsets, keys, times, values, metadata, points)))


def _tables(texts: Sequence[bytes], joined: bytes) -> list[dict[str, Any]] | None:
    """The table of each text, None where there may be another number of them in one.

    `joined` is the texts with a comma and a line end between each two. No string goes on behind a
    line end, no list is open there, and an object does not go on with the brace that each text
    begins with: so a text is one value or several, and as many values as texts are one in each.
    """
    if (
        b"[" in joined
        or joined.count(b"{") != 2 * len(texts)  # A table in a table is found out before parsing.
        or not {text[:2] for text in texts} <= {b" {"}
        or max(map(len, texts), default=0) > MAX_MLLOG_LINE_BYTES
    ):
        return None
    try:
        tables: list[dict[str, Any]] = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return None
    return tables if len(tables) == len(texts) else None


def _are_keys(keys: set[Any]) -> bool:
    return all(type(key) is str and 0 < len(key) <= MAX_KEY_LENGTH for key in keys)


def _are_times(times: Sequence[Any]) -> bool:
    if not set(map(type, times)) <= {int, float}:
        return False
    return not times or (min(times) >= 0 and max(times) <= MAX_TIME_MS)

"""The lines of an MLPerf log as typed records."""

import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import orjson

from rules.errors import LogFormatError
from rules.logs.blocks import MAX_MLLOG_LINE_BYTES, Block, whole_line_blocks
from rules.logs.json_text import parse_json, refuse_repeated_keys

MLLOG_MARK = b":::MLLOG"
MAX_TIME_MS = 1e14  # The year 5138.
MAX_KEY_LENGTH = 100
MAX_MLLOG_LINES = 200_000
# The published checker finds these anywhere in a line.
MISLEADING_KEYS = (b'"global_batch_size"', b'"eval_accuracy"', b'"eval_error"', b'"run_stop"')

_KEY_LETTERS = frozenset(string.ascii_letters + string.digits + "_")

Report = Callable[[LogFormatError], None]
SetAside = Callable[[re.Match[bytes], Block], bool]


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


@dataclass(frozen=True)
class LineFinder:
    """Finds the MLLOG lines of a block that are to be read; a carriage return ends a line too.

    To look for one ending is several times faster than for either of two, and few logs have both.
    """

    plain: re.Pattern[bytes]
    with_returns: re.Pattern[bytes]

    def find_in(self, content: bytes) -> Iterator[re.Match[bytes]]:
        """The lines, in order; the last group of each is its text after the mark."""
        return (self.with_returns if b"\r" in content else self.plain).finditer(content)


def every_line() -> LineFinder:
    """What finds every MLLOG line; its group is the text after the mark."""
    return _finder(MLLOG_MARK + rb"(REST)")


def lines_that_count(keys: Collection[str]) -> LineFinder:
    """What finds the MLLOG lines that have one of some keys, and any of unusual spelling.

    Most lines of a log are of no use to whoever wants one figure. A line in the spelling of
    MLPerf's own logger whose key is another is passed over without being parsed. Its groups are
    the text of an eval_accuracy in that spelling, or else the text of any other line.
    """
    counted = b"|".join(re.escape(key.encode()) for key in sorted(keys))
    others = "".join(sorted(_KEY_LETTERS - {key[0] for key in keys})).encode()
    # Up to the event type every line of this spelling is equally long: the time has 13 digits.
    # Most keys differ from those that count in their first letter.
    head = rb' \{ANY{57}+"(?:POINT_IN_TIME|INTERVAL_(?:START|END))", "key": "'
    other = head + rb"(?:[" + others + rb"]|(?!(?:" + counted + rb')"))[A-Za-z0-9_]++"'
    evaluation = rb'( \{ANY{57}+"POINT_IN_TIME", "key": "eval_accuracy", "REST)'
    # The engine looks for the first letter of a pattern, and colons are everywhere.
    mark = rb"LLOG(?!" + other + rb")(?<=" + MLLOG_MARK + rb")"
    return _finder(mark + rb"(?:" + evaluation + rb"|(REST))")


def _finder(pattern: bytes) -> LineFinder:
    """The finder of a pattern in which ANY is a byte of the line and REST what is left of it."""
    pattern = pattern.replace(b"REST", b"ANY*+")
    plain, with_returns = (pattern.replace(b"ANY", any_byte) for any_byte in (b".", rb"[^\r\n]"))
    return LineFinder(re.compile(plain), re.compile(with_returns))


def read_mllog(
    chunks: Iterable[bytes],
    *,
    file: str,
    lines: LineFinder,
    counted_keys: frozenset[str],
    report: Report,
    notice: Report | None = None,
    set_aside: SetAside | None = None,
) -> Iterator[MllogRecord]:
    """The MLLOG lines that `lines` finds, in order.

    Lines whose key is in `counted_keys` may not hold a key twice; nor may a line that tries to
    have two readings as to which key it has. A line that is none is reported, with file, line and
    field, and left out; `report` may raise. A line that is sound but names a key that counts where
    a careless reader would take it for one goes to `notice`. `set_aside` is shown each line that is
    in the first of two groups of `lines`, and says whether to leave it out.
    """
    found = 0
    for block in whole_line_blocks(chunks, mark=MLLOG_MARK):
        for match in lines.find_in(block.content):
            group = match.lastindex or 1
            if group == 1 and set_aside is not None and set_aside(match, block):
                continue
            found += 1
            text, offset = match[group], match.start()
            try:
                record = read_record(text, block, offset, counted_keys=counted_keys)
            except LogFormatError as error:
                error.file, error.line = file, block.line_at(offset)
                report(error)
                continue
            if found > MAX_MLLOG_LINES:
                expected = f"at most {MAX_MLLOG_LINES:,} MLLOG lines"
                report(_problem("too many lines", None, expected, "too_many_lines", file, record))
                return
            if notice is not None and record.key not in counted_keys:
                _notice_hidden(text, record, file, notice)
            yield record


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
    return MllogRecord(block, offset, key, time_ms, table.get("value"), metadata, point_in_time)


def _read_odd_line(
    text: bytes, block: Block, offset: int, *, counted_keys: frozenset[str]
) -> MllogRecord:
    if len(text) > MAX_MLLOG_LINE_BYTES:
        expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
        message = f"an MLLOG line of more than {MAX_MLLOG_LINE_BYTES:,} bytes"
        raise _problem(message, None, expected, "long_line")
    record = _record(parse_json(text, file=""), block, offset)
    if record.key in counted_keys or text.count(b'"key"') != 1 or b"\\" in text:
        refuse_repeated_keys(text, file="")
    return record


def _notice_hidden(text: bytes, record: MllogRecord, file: str, notice: Report) -> None:
    for key in MISLEADING_KEYS:
        if key in text:
            name = key.decode().strip('"')
            message = f"a line of {record.key!r} with {name} in it"
            expected = f"{name} as a key, or not at all"
            code = "misleading_line"
            notice(_problem(message, record.key, expected, code, file, record))
            return


def _record(table: Any, block: Block, offset: int) -> MllogRecord:
    if type(table) is not dict:
        raise _problem("an MLLOG line without an object", None, "a JSON object")
    key, time_ms, metadata = table.get("key"), table.get("time_ms"), table.get("metadata")
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_LENGTH:
        expected = f"a text of 1 to {MAX_KEY_LENGTH} characters"
        raise _problem("no key", "key", expected)
    if not is_number(time_ms) or not 0 <= time_ms <= MAX_TIME_MS:
        expected = "milliseconds since 1970, a number of at least 0"
        raise _problem(f"got {repr(time_ms)[:60]}", "time_ms", expected)
    if metadata is None:
        metadata = {}
    if type(metadata) is not dict:
        raise _problem(f"got {repr(metadata)[:60]}", "metadata", "a JSON object")
    point_in_time = table.get("event_type") == "POINT_IN_TIME"
    return MllogRecord(block, offset, key, time_ms, table.get("value"), metadata, point_in_time)


def _problem(
    message: str,
    field: str | None,
    expected: str,
    code: str = "bad_line",
    file: str | None = None,
    record: MllogRecord | None = None,
) -> LogFormatError:
    line = record.line() if record else None
    return LogFormatError(message, file=file, line=line, field=field, expected=expected, code=code)

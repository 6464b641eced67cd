"""Read the lines of an MLPerf log as records, whichever of the three marks they have.

v0.7 and later: `:::MLLOG {"key": ..., "time_ms": ..., "value": ..., "metadata": {...}}`. v0.6:
`:::MLL 1558635870.442 key: {"value": ..., "metadata": {...}}`. Times are seconds. v0.5:
`:::MLPv0.5.0 resnet 1541720386.718 (file.py:49) key: json`. The JSON is optional, run_stop may say
{"success": true} or "true" or nothing, and epochs may count from -1. It never had a published
checker.
Source: mlcommons/training_results_v0.5 and mlperf-logging, mlp_parser/ruleset_060 and later.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeGuard

import orjson

from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.text import parse_json, refuse_repeated_keys

MAX_MLLOG_LINE_BYTES = 16 * 1024  # The longest real line has 367 bytes.
MAX_MLLOG_LINES = 200_000
MAX_KEY_LENGTH = 100
MAX_TIME_MS = 1e14  # The year 5138.
EARLIEST_TIME_MS = 1_262_304_000_000  # 2010, years before the first log of MLPerf.
LATEST_TIME_MS = 4_102_444_800_000  # 2100.
A_TIME = "milliseconds since 1970, such as 1790000000000"
# The published checker finds these anywhere in a line.
MISLEADING_KEYS = ("global_batch_size", "eval_accuracy", "eval_error", "run_stop")
QUOTED_KEYS = {key: b'"%b"' % key.encode() for key in MISLEADING_KEYS}

_NAME = rb"\w{1,60}+"
# The shape of a line has nines for all digits, the largest, so a log has few shapes. A line of a
# sound shape is sound too, but for a leading zero after ": ", and where this is found in the shape.
_SHAPES = bytes.maketrans(b"\r012345678", b"\n999999999")
_LEADING_ZERO = re.compile(rb": 0[0-9]")
_UNSURE = re.compile(rb"[\\\x80-\xff]|:::ML|[:,\[\t]9|(?<!:) 9|(?<!e)-9")
_TIME = rb"(?P<time>[0-9]{1,12}(?:\.[0-9]{0,12})?)"
_COUNTED_05 = rb"run_start|run_stop|eval_accuracy|run_set_random_seed|seed"
_LINE_05 = re.compile(
    rb"[0-9.]{0,8} (?P<benchmark>[a-z0-9_]{1,40}) "
    + _TIME
    + rb" \([^)]*+(?:\)(?! )[^)]*+)*+\) (?P<key>" + _COUNTED_05 + rb")(?::[ ]*(?P<value>.*))?[ ]*"
)  # fmt: skip
_LINE_06 = re.compile(_TIME + rb" (?P<key>[A-Za-z0-9_]{1,100}) ?:(?P<value>.*)")
_SEED = "run_set_random_seed"
_FLOAT = re.compile(r"[0-9]{1,15}\.[0-9]{1,30}")
MAX_SEEDS_05 = 100  # One for each rank, and of 16 bits: more of them agree by chance.
# Where a log of v0.5 has several qualities at once, the target is stated for the first of these.
_MAIN_QUALITIES = ("BBOX", "bbox", "BB", "box")


class Record(NamedTuple):
    """One line of a log. `line` is its number, `time_ms` a finite count of ms since 1970."""

    line: int
    key: str
    time_ms: float
    value: Any
    metadata: dict[str, Any]
    point_in_time: bool
    text: bytes

    def fault(
        self, message: str, expected: str, code: str | None = None, *, field: str | None = None
    ) -> LogFormatError:
        """Return the error for a field of the line, by default for its key."""
        field = field or self.key
        return LogFormatError(message, line=self.line, field=field, expected=expected, code=code)

    def misleading_key(self) -> str | None:
        """Return a key that counts for a careless reader of this line."""
        for key, quoted in QUOTED_KEYS.items():
            if quoted in self.text:
                return key
        return None


Records = Iterable[Record]


class Format(NamedTuple):
    """A format of MLPerf's logs. `version` is its round, None for v0.7 and all later ones.

    `read` decodes the text after the mark, None if unknown. `key` finds an unreadable line's key.
    `as_later` converts lines to the latest format. Epochs may count from `first_epoch`.
    """

    mark: bytes
    version: str | None
    read: Callable[[bytes, int], Record | None]
    key: re.Pattern[bytes]
    as_later: Callable[[Records, QualityTarget | None], Records] = lambda records, target: records
    first_epoch: int | None = None

    def key_of(self, text: bytes) -> str | None:
        """Return the only key of an unreadable line."""
        found = self.key.findall(text)
        return found[0].decode() if len(found) == 1 else None


def format_of(content: bytes) -> Format | None:
    """Return the format with a mark in the text, if any."""
    return next((each for each in (MLLOG, MLP05, MLP06) if each.mark in content), None)


def read_lines(
    chunks: Iterable[bytes],
    form: Format,
    *,
    file: str,
    wanted: frozenset[str] | None,
    report: Callable[[LogFormatError, bytes], None],
) -> Iterator[Record]:
    """Yield the records of a log, in order. An unreadable line goes to `report`, which may raise.

    With `wanted` sound lines with another key are skipped, most of them undecoded.
    """
    found, number = 0, 1
    marked = re.compile(form.mark + rb"(.{0,512}+).*+")
    for block in whole_line_blocks(chunks, mark=form.mark):
        counted = 0
        has_shapes = form is MLLOG and _LEADING_ZERO.search(block) is None
        shapes = block.translate(_SHAPES) if has_shapes else block.replace(b"\r", b"\n")
        for line in marked.finditer(shapes):  # A carriage return ends a line too.
            kind = _kind_of(line[1], wanted) if has_shapes else None
            if kind == "needless":
                continue
            number += block.count(b"\n", counted, line.start())
            counted = line.start()
            # Ranks that write at once leave out the end of a line.
            for text in block[line.start(1) : line.end()].split(form.mark):
                try:
                    if kind == "sound":
                        record: Record | None = read_record(text, number, is_sound=True)
                    else:
                        record = form.read(text, number)
                    if record is not None and _is_wanted(record, wanted):
                        found += 1
                        if found > MAX_MLLOG_LINES:
                            expected = f"at most {MAX_MLLOG_LINES:,} lines"
                            raise line_error("too many lines", None, expected, "too_many_lines")
                        yield record
                except LogFormatError as error:
                    error.file, error.line = file, number
                    report(error, text)
                    if found > MAX_MLLOG_LINES:
                        return
        number += block.count(b"\n", counted)


@lru_cache(maxsize=4096)
def _kind_of(shape: bytes, wanted: frozenset[str] | None) -> Literal["needless", "sound", None]:
    """Whether the lines of a shape are sound, and useless too. None where digits decide."""
    try:
        record = read_record(shape, 0)
    except LogFormatError:
        return None
    if _UNSURE.search(shape):
        return None
    return "sound" if _is_wanted(record, wanted) else "needless"


def _is_wanted(record: Record, wanted: frozenset[str] | None) -> bool:
    return wanted is None or record.key in wanted or record.misleading_key() is not None


def whole_line_blocks(chunks: Iterable[bytes], *, mark: bytes) -> Iterator[bytes]:
    """Cut the chunks of a file anew at line ends, or at carriage returns in a long line.

    Of a line over the limit with `mark`, only enough remains for a reader to notice.
    """
    rest = b""
    for chunk in chunks:
        content = rest + chunk
        end = content.rfind(b"\n") + 1 or content.rfind(b"\r") + 1
        yield content[:end]
        rest = content[end:]
        if len(rest) > 2 * MAX_MLLOG_LINE_BYTES:
            at = rest.find(mark)
            kept = rest[at : at + 2 * MAX_MLLOG_LINE_BYTES]
            rest = rest[-len(mark) + 1 :] if at < 0 else kept
    yield rest


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number, unlike True and False."""
    return type(value) is float or type(value) is int


def read_record(text: bytes, line: int, *, is_sound: bool = False) -> Record:
    """Read the record in the text after `:::MLLOG`. Raises LogFormatError without file and line."""
    if len(text) > MAX_MLLOG_LINE_BYTES:
        refuse_long(text)
    try:
        table = orjson.loads(text)
    except orjson.JSONDecodeError:
        table = parse_json(text, file="")
    if type(table) is not dict:
        raise line_error("an MLLOG line without an object", None, "a JSON object")
    key: Any = table.get("key")
    time_ms: Any = table.get("time_ms")
    value, metadata = table.get("value"), table.get("metadata")
    metadata = {} if metadata is None else metadata
    in_time = table.get("event_type") == "POINT_IN_TIME"
    record = Record(line, key, time_ms, value, metadata, in_time, text)
    if is_sound:
        return record
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_LENGTH:
        expected = f"a text of 1 to {MAX_KEY_LENGTH} characters"
        raise line_error("no key", "key", expected)
    if not is_number(time_ms) or not 0 <= time_ms <= MAX_TIME_MS:
        raise line_error(f"got {repr(time_ms)[:60]}{unit_hint(time_ms)}", "time_ms", A_TIME)
    if type(metadata) is not dict:
        raise line_error(f"got {repr(metadata)[:60]}", "metadata", "a JSON object")
    # Each key is followed by a colon, so a line with at most as many colons as keys repeats no key,
    # and a line without a list is shallow.
    keys = len(table) + len(metadata) + (len(value) if type(value) is dict else 0)
    if text.find(b"[") >= 0 or text.count(b":") != keys:
        parse_json(text, file="")
        refuse_repeated_keys(text, file="")
    return record


def read_record_05(text: bytes, line: int) -> Record | None:
    """Read a line of v0.5. Its metadata has the benchmark, and its time is in seconds."""
    match = _LINE_05.fullmatch(text)
    if match is None:
        return None
    metadata = {"benchmark": match["benchmark"].decode()}
    return _earlier(match, line, float(match["time"]), _json(match["value"]), metadata)


def read_record_06(text: bytes, line: int) -> Record | None:
    match = _LINE_06.match(text)
    if match is None:
        return None
    table = _json(match["value"])
    metadata = table.get("metadata") if type(table) is dict else None
    if type(metadata) is not dict:
        expected = "a JSON object with value and metadata"
        raise line_error(f"a line of {match['key'].decode()!r} that is no table", None, expected)
    return _earlier(match, line, float(match["time"]) * 1000, table.get("value"), metadata)


def _earlier(
    match: re.Match[bytes], line: int, time_ms: float, value: Any, metadata: dict[str, Any]
) -> Record:
    key = match["key"].decode()
    in_time = not key.endswith(("_start", "_stop"))
    return Record(
        line, "seed" if key == _SEED else key, time_ms, value, metadata, in_time, match[0]
    )


def _json(text: bytes | None) -> Any:
    """Read the JSON of a line. Some loggers wrote the metadata as Python has it."""
    if text is None or not text.strip():
        return None
    refuse_long(text)
    try:
        value = parse_json(text, file="")
    except LogFormatError:
        if b"'" not in text:
            raise
        text = text.replace(b"'", b'"')
        value = parse_json(text, file="")
    refuse_repeated_keys(text, file="")
    return value


def _as_later_05(records: Records, target: QualityTarget | None) -> Records:
    """Rewrite the lines of a v0.5 log as a later round has them, with times from 0.

    A line that two loggers wrote alike counts once. Seeds are dropped if they are not whole numbers
    or more than `MAX_SEEDS_05`, because the rules did not ask for one.
    """
    names = target.logged_names if target is not None else ()
    benchmark: str | None = None
    first: float | None = None
    written: dict[str, tuple[Any, ...]] = {}
    seeds: set[int] = set()
    for record in records:
        key, value = record.key, record.value
        first = record.time_ms if first is None else first
        told = (record.time_ms, value, record.metadata)
        if written.get(key) == told:
            continue
        written[key] = told
        if record.metadata["benchmark"] != benchmark:
            benchmark = record.metadata["benchmark"]
            yield record._replace(key="submission_benchmark", value=benchmark)
        metadata: dict[str, Any] = {}
        if key == "seed":
            if type(value) is not int or value < 0 or len(seeds) == MAX_SEEDS_05:
                continue
            seeds.add(value)
        if key == "run_stop":
            success = value.get("success") if type(value) is dict else None
            if success is not None:
                good = success in (True, "true", "True")
                metadata = {"status": "success" if good else "aborted"}
        if key == "eval_accuracy" and type(value) is dict:
            metadata, value = {"epoch_num": value.get("epoch")}, value.get("value")
        if key == "eval_accuracy" and type(value) is dict:
            if names:  # The main one first.
                said = {str(name).lower(): quality for name, quality in value.items()}
                value = {name: said.get(name.lower()) for name in names}
            else:
                value = next((value[name] for name in _MAIN_QUALITIES if name in value), None)
        time_ms = (record.time_ms - first) * 1000
        yield record._replace(value=value, time_ms=time_ms, metadata=metadata)


def _as_later_06(records: Records, target: QualityTarget | None) -> Records:
    """Rewrite v0.6 lines as later ones. A quality may be a text, in a table, or in a list."""
    names = target.logged_names if target is not None else ()
    if target is not None and target.timed_by_result:
        records = _stopped_at_result(records)
    for record in records:
        value = record.value
        if record.key in ("eval_accuracy", "eval_error"):
            if type(value) is str and _FLOAT.fullmatch(value):
                value = float(value)
            if type(value) is dict and value.keys() == {"accuracy"}:
                value = value["accuracy"]
            if type(value) is list and len(value) == len(names):
                value = dict(zip(names, value, strict=True))
        yield record._replace(value=value)


def _stopped_at_result(records: Records) -> Iterator[Record]:
    """Add a run_stop where eval_result of MiniGo says that the passing model was saved.

    A result of 0 seconds says that every model failed. A successful run_stop of the measuring is
    left out.
    """
    start_ms: float | None = None
    stopped = False
    for record in records:
        if record.key == "run_start" and start_ms is None:
            start_ms = record.time_ms
        elif record.key == "eval_result" and start_ms is not None:
            seconds: Any = record.metadata.get("timestamp")
            if is_number(seconds) and 0 < seconds <= (record.time_ms - start_ms) / 1000:
                stopped = True
                time_ms, success = start_ms + seconds * 1000, {"status": "success"}
                yield record._replace(key="run_stop", time_ms=time_ms, metadata=success)
                continue
        is_success = record.key == "run_stop" and record.metadata.get("status") == "success"
        if not (stopped and is_success):
            yield record


_KEY = re.compile(rb'"key" ?: ?"(%b)"' % _NAME)
_KEY_05 = re.compile(rb"\A.{0,400}?\) (%b)" % _NAME)
_KEY_06 = re.compile(rb"\A[0-9.]{1,30} (%b) ?:" % _NAME)
MLLOG = Format(b":::MLLOG", None, read_record, _KEY)
# Published logs of the transformer count epochs from -1.
MLP05 = Format(b":::MLPv0.5", "0.5", read_record_05, _KEY_05, _as_later_05, first_epoch=-1)
MLP06 = Format(b":::MLL ", "0.6", read_record_06, _KEY_06, _as_later_06)


def unit_hint(time: object) -> str:
    """Ask for the unit of a time that fits today's logs in other units."""
    for unit, milliseconds in (("seconds", 1e3), ("microseconds", 1e-3), ("nanoseconds", 1e-6)):
        first, last = EARLIEST_TIME_MS / milliseconds, LATEST_TIME_MS / milliseconds
        if is_number(time) and first <= time <= last:
            return f": are these {unit}?"
    return ""


def day_of_time(time_ms: float) -> str:
    """Return the day of a time, as 2026-11-28."""
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
    """Return the fault of a line, to be completed by its file and number."""
    return LogFormatError(message, field=field, expected=expected, code=code)


def mllog_line(
    key: str,
    value: Any = None,
    *,
    time_ms: float,
    kind: str = "POINT_IN_TIME",
    metadata: Mapping[str, str | float] | None = None,
) -> bytes:
    """Write one line of a log, with its end."""
    line = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata or {},
    }
    return MLLOG.mark + b" " + orjson.dumps(line) + b"\n"

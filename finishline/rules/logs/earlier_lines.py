"""Lines of the logs of MLPerf Training v0.5 and v0.6, decoded as the lines of later rounds.

v0.5: `:::MLPv0.5.0 resnet 1541720386.718 (file.py:49) key: json`. The JSON is optional, run_stop
may say {"success": true} or "true" or nothing, and epochs may count from -1. No checker was ever
published.
v0.6: `:::MLL 1558635870.442 key: {"value": ..., "metadata": {...}}`. Times are seconds.
Source: mlcommons/training_results_v0.5; mlperf-logging, mlp_parser/ruleset_060.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_record import MllogRecord, is_number, line_error, refuse_long
from finishline.rules.logs.text import Block, parse_json, refuse_repeated_keys

_TIME = rb"(?P<time>[0-9]{1,12}(?:\.[0-9]{0,12})?)"
_COUNTED = rb"run_start|run_stop|eval_accuracy|run_set_random_seed|seed"
_LINE_05 = re.compile(
    rb"[0-9.]{0,8} (?P<benchmark>[a-z0-9_]{1,40}) "
    + _TIME
    + rb" \(.{0,300}?\) (?P<key>" + _COUNTED + rb")(?::[ ]*(?P<value>.*))?[ ]*"
)  # fmt: skip
_LINE_06 = re.compile(_TIME + rb" (?P<key>[A-Za-z0-9_]{1,100}) ?:(?P<value>.*)")
MAX_SEEDS_05 = 100  # One for each rank, and of 16 bits: more of them agree by chance.
FIRST_EPOCH_05 = -1  # In published logs of the transformer.
_SEED = "run_set_random_seed"
_NUMBER = re.compile(r"[0-9]{1,15}\.[0-9]{1,30}")
# Where a log of v0.5 has several qualities at once, the target is stated for the first of these.
_MAIN_QUALITIES = ("BBOX", "bbox", "BB", "box")


def read_record_05(text: bytes, block: Block, offset: int) -> MllogRecord | None:
    """The record of a line of v0.5. Its metadata has the benchmark, and its time is in seconds."""
    match = _LINE_05.fullmatch(text)
    if match is None:
        return None
    value = _value(match["value"])
    key = match["key"].decode()
    metadata = {"benchmark": match["benchmark"].decode()}
    key = "seed" if key == _SEED else key
    return _record(block, offset, key, float(match["time"]), value, metadata)


def read_record_06(text: bytes, block: Block, offset: int) -> MllogRecord | None:
    """The record of a line of v0.6."""
    match = _LINE_06.match(text)
    if match is None:
        return None
    key, table = match["key"].decode(), _value(match["value"])
    metadata = table.get("metadata") if type(table) is dict else None
    if type(metadata) is not dict:
        expected = "a JSON object with value and metadata"
        raise line_error(f"a line of {key!r} that is no table", None, expected)
    key = "seed" if key == _SEED else key
    time_ms = float(match["time"]) * 1000
    return _record(block, offset, key, time_ms, table.get("value"), metadata)


def _record(
    block: Block, offset: int, key: str, time_ms: float, value: Any, metadata: dict[str, Any]
) -> MllogRecord:
    in_time = not key.endswith(("_start", "_stop"))
    return MllogRecord(block, offset, key, time_ms, value, metadata, in_time)


def _value(text: bytes | None) -> Any:
    """The JSON of a line. Some loggers wrote the metadata as Python has it."""
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


def as_later_05(records: Iterable[MllogRecord], names: Sequence[str]) -> Iterator[MllogRecord]:
    """The lines of a v0.5 log as a later round would write them.

    A line that two loggers wrote alike counts once. `names` are the metrics of an evaluation that
    has several. A seed that is no whole number is left out, since no rule asked for one, and so are
    the seeds of more ranks than `MAX_SEEDS_05`. Times count from the first line.
    """
    benchmark: str | None = None
    first: float | None = None
    written: dict[str, MllogRecord] = {}
    seeds: set[int] = set()
    for record in records:
        key, value = record.key, record.value
        first = record.time_ms if first is None else first
        before = written.get(key)
        written[key] = record
        if before is not None and before[3:6] == record[3:6]:
            continue
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
            value = _main_first(value, names)
        time_ms = (record.time_ms - first) * 1000
        yield record._replace(value=value, time_ms=time_ms, metadata=metadata)


def _main_first(value: dict[str, Any], names: Sequence[str]) -> Any:
    """Several qualities by their names, the main one first. Its number alone without names."""
    if not names:
        return next((value[name] for name in _MAIN_QUALITIES if name in value), None)
    said = {str(name).lower(): quality for name, quality in value.items()}
    return {name: said.get(name.lower()) for name in names}


def as_later_06(
    records: Iterable[MllogRecord], names: Sequence[str], *, timed_by_result: bool
) -> Iterator[MllogRecord]:
    """The lines of a v0.6 log as a later round would write them.

    A quality may be a text, stand in a table, or be a list in the order of `names`.
    """
    for record in _stopped_at_result(records) if timed_by_result else records:
        value = record.value
        if record.key in ("eval_accuracy", "eval_error"):
            if type(value) is str and _NUMBER.fullmatch(value):
                value = float(value)
            if type(value) is dict and value.keys() == {"accuracy"}:
                value = value["accuracy"]
            if type(value) is list and len(value) == len(names):
                value = dict(zip(names, value, strict=True))
        yield record._replace(value=value)


def _stopped_at_result(records: Iterable[MllogRecord]) -> Iterator[MllogRecord]:
    """The lines with a run_stop where eval_result says that the model which passed was saved.

    MiniGo's logs say so. A result of 0 seconds says that none passed. The run_stop of the measuring
    is left out if it says success as well.
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

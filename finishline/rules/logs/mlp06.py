"""MLPerf Training v0.6 logs (`:::MLL 1558635870.442 key: {"value": ..., "metadata": {...}}`).

Times are seconds; keys and their meaning are those of the rounds after it.
Source: mlperf-logging, mlp_parser/ruleset_060 and compliance_checker/training_0.6.0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from finishline.rules.benchmarks.quality import LoggedQuality, QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_lines import MAX_MLLOG_LINES, MllogRecord, Report
from finishline.rules.logs.mllog_run import COUNTED_KEYS, QUALITY_KEYS, RUN_KEYS, Reading, RunReader
from finishline.rules.logs.text import (
    MAX_MLLOG_LINE_BYTES,
    Block,
    parse_json,
    refuse_repeated_keys,
    whole_line_blocks,
)

MLP06_MARK = b":::MLL "
OTHER_KEYS = {"run_set_random_seed": "seed"}
RESULT = "eval_result"
_READ = COUNTED_KEYS | OTHER_KEYS.keys() | {RESULT}
# Settings are repeated by the hundred; one that can be read is enough.
_NEEDED = RUN_KEYS | QUALITY_KEYS | {RESULT}
_LINE = re.compile(
    re.escape(MLP06_MARK)
    + rb"(?P<time>[0-9]{1,12}(?:\.[0-9]{0,12})?) (?P<key>[A-Za-z0-9_]{1,100}) ?:"
    + rb"(?P<text>[^\r\n]*)"
)  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,15}\.[0-9]{1,30}")


def read_mlp06_chunks(
    chunks: Iterable[bytes],
    *,
    name: str,
    allowed: Mapping[str, Sequence[str]],
    report: Report,
    odd: Report | None = None,
    told: bool = False,
    target: QualityTarget | LoggedQuality | None = None,
) -> Reading:
    """The run in a v0.6 log of any size, given piece by piece.

    Errors go to `report`, which may raise; if it does not, the line is left out. `odd` gets the
    lines that read_mllog_chunks lists, and broken lines that no figure needs. With `told` there are
    hyperparameters and a ledger. `target` names the metrics of an evaluation that has several.

    Where it says so (MiniGo) the log's `eval_result` tells when the first model that passed was
    saved: the run stopped there, with success.
    """
    reader = RunReader(name, allowed, told=told, report=report, odd=odd, target=target)
    names = target.logged_names if target is not None else ()
    records = _read_lines(chunks, file=name, report=report, odd=odd or report, told=told)
    if isinstance(target, LoggedQuality) and target.timed_by_result:
        records = _stopped_at_result(records)
    for record in records:
        if record.key in QUALITY_KEYS:
            record = record._replace(value=_quality(record.value, names))
        reader.read(record)
    return reader.reading()


def _read_lines(
    chunks: Iterable[bytes], *, file: str, report: Report, odd: Report, told: bool
) -> Iterator[MllogRecord]:
    found = 0
    for block in whole_line_blocks(chunks, mark=MLP06_MARK):
        for match in _LINE.finditer(block.content):
            key = match["key"].decode()
            if not told and key not in _READ:
                continue
            found += 1
            if found > MAX_MLLOG_LINES:
                expected = f"at most {MAX_MLLOG_LINES:,} lines that count"
                line = block.line_at(match.start())
                report(LogFormatError("too many lines", file=file, line=line, expected=expected))
                return
            try:
                yield _record(match, key, block)
            except LogFormatError as error:
                error.file, error.line = file, block.line_at(match.start())
                (report if key in _NEEDED else odd)(error)


def _record(match: re.Match[bytes], key: str, block: Block) -> MllogRecord:
    text = match["text"]
    if len(text) > MAX_MLLOG_LINE_BYTES:
        expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
        message = f"a line of more than {MAX_MLLOG_LINE_BYTES:,} bytes"
        raise LogFormatError(message, expected=expected, code="long_line")
    table, text = _parsed(text)
    if key in _READ:
        refuse_repeated_keys(text, file="")
    metadata = table.get("metadata") if type(table) is dict else None
    if type(table) is not dict or type(metadata) is not dict:
        expected = "a JSON object with value and metadata"
        raise LogFormatError(
            f"a line of {key!r} that is no table", expected=expected, code="bad_line"
        )
    return MllogRecord(
        block,
        match.start(),
        OTHER_KEYS.get(key, key),
        float(match["time"]) * 1000,
        table.get("value"),
        metadata,
        not key.endswith(("_start", "_stop")),
    )


def _parsed(text: bytes) -> tuple[Any, bytes]:
    """The JSON of a line, and its text; some loggers wrote the metadata as Python has it."""
    try:
        return parse_json(text, file=""), text
    except LogFormatError:
        if b"'" not in text:
            raise
    text = text.replace(b"'", b'"')
    return parse_json(text, file=""), text


def _quality(value: Any, names: Sequence[str]) -> Any:
    """The value of an evaluation: a number, also as text, or a quality for each name."""
    if type(value) is str and _NUMBER.fullmatch(value):
        return float(value)
    if type(value) is dict and value.keys() == {"accuracy"}:
        value = value["accuracy"]
    if type(value) is list and len(value) == len(names):
        value = dict(zip(names, value, strict=True))
    return value


def _stopped_at_result(records: Iterable[MllogRecord]) -> Iterator[MllogRecord]:
    """The lines with a run_stop where eval_result says that the model which passed was saved.

    A result of 0 seconds says that none passed. The run_stop of the measuring, where there is one,
    is left out if it says success as well.
    """
    start_ms: float | None = None
    stopped = False
    for record in records:
        if record.key == "run_start" and start_ms is None:
            start_ms = record.time_ms
        elif record.key == RESULT and start_ms is not None:
            seconds: Any = record.metadata.get("timestamp")
            if type(seconds) in (int, float) and 0 < seconds <= (record.time_ms - start_ms) / 1000:
                stopped = True
                time_ms, success = start_ms + seconds * 1000, {"status": "success"}
                yield record._replace(key="run_stop", time_ms=time_ms, metadata=success)
                continue
        if not (stopped and record.key == "run_stop" and _says_success(record)):
            yield record


def _says_success(stop: MllogRecord) -> bool:
    return bool(stop.metadata.get("status") == "success")

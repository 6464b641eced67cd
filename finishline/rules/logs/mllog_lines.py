"""The lines of an MLPerf log as records, whichever of the three marks they have."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.earlier_lines import read_record_05, read_record_06
from finishline.rules.logs.mllog_record import MllogRecord, line_error, read_record
from finishline.rules.logs.text import Block, whole_line_blocks

MAX_MLLOG_LINES = 200_000
# The published checker finds these anywhere in a line.
MISLEADING_KEYS = ("global_batch_size", "eval_accuracy", "eval_error", "run_stop")

_NAME = rb"[A-Za-z0-9_]{1,60}+"
# A line as MLPerf's own logger spells it: up to its key, and the JSON of its value and metadata.
_HEAD = rb' \{"namespace": "", "time_ms": [0-9]{13}, "event_type": "[A-Z_]{1,20}", "key": '
_LEADING = rb'(?!(?:%b)")' % "|".join(MISLEADING_KEYS).encode()
_TEXT = rb'"%b[^"\\:\x00-\x1f]*+"' % _LEADING
_NUMBER = rb"-?+(?:0|[1-9][0-9]{0,17}+)(?:\.[0-9]++)?+(?:e[+-]?+[0-9]{1,2}+)?+"
_VALUE = rb"(?:%b|%b|null|true|false)" % (_NUMBER, _TEXT)
_PAIR = rb'"%b%b": %b' % (_LEADING, _NAME, _VALUE)
_TABLE = rb"\{(?:%b(?:, %b)*+)?+\}" % (_PAIR, _PAIR)
_REST = rb'"value": (?:%b|%b), "metadata": %b\} *+(?=[\r\n]|:::ML|\Z)' % (_VALUE, _TABLE, _TABLE)


class Format(NamedTuple):
    """A format of MLPerf's logs. `version` is its round, None for v0.7 and all later ones.

    `read` decodes the text after the mark. It returns None for a line that no rule knows. `key`
    finds the key of a line that cannot be read.
    """

    mark: bytes
    version: str | None
    read: Callable[[bytes, Block, int], MllogRecord | None]
    key: re.Pattern[bytes]

    def key_of(self, text: bytes) -> str | None:
        """The one key of a line that cannot be read."""
        found = self.key.findall(text)
        return found[0].decode() if len(found) == 1 else None


MLLOG = Format(b":::MLLOG", None, read_record, re.compile(rb'"key" ?: ?"(%b)"' % _NAME))
MLP05 = Format(b":::MLPv0.5", "0.5", read_record_05, re.compile(rb"\A.{0,400}?\) (%b)" % _NAME))
MLP06 = Format(b":::MLL ", "0.6", read_record_06, re.compile(rb"\A[0-9.]{1,30} (%b) ?:" % _NAME))


def format_of(content: bytes) -> Format | None:
    """The format whose mark a text has. None without any."""
    return next((each for each in (MLLOG, MLP05, MLP06) if each.mark in content), None)


def read_lines(
    chunks: Iterable[bytes],
    form: Format,
    *,
    file: str,
    wanted: frozenset[bytes] | None,
    report: Callable[[LogFormatError, bytes], None],
) -> Iterator[MllogRecord]:
    """The records of a log, in order.

    With `wanted` the lines with another key are passed over where they are as MLPerf's own logger
    spells them. A line that is not, such as a broken one, is decoded all the same.
    A line that cannot be read goes to `report` with its text, and is left out. `report` may raise.
    """
    found = 0
    lines = _pattern(form.mark, wanted)
    for block in whole_line_blocks(chunks, mark=form.mark):
        for line in lines.finditer(block.content):
            offset = line.start()
            # Ranks that write at once leave out the end of a line.
            for text in line[1].split(form.mark):
                try:
                    record = form.read(text, block, offset)
                    if record is not None:
                        found += 1
                        if found > MAX_MLLOG_LINES:
                            expected = f"at most {MAX_MLLOG_LINES:,} lines"
                            raise line_error("too many lines", None, expected, "too_many_lines")
                        yield record
                except LogFormatError as error:
                    error.file, error.line = file, block.line_at(offset)
                    report(error, text)
                    if found > MAX_MLLOG_LINES:
                        return
                offset += len(form.mark) + len(text)


@cache
def _pattern(mark: bytes, wanted: frozenset[bytes] | None) -> re.Pattern[bytes]:
    """A mark with the text after it. A carriage return ends a line too.

    With `wanted` whole lines of MLPerf's own logger with another key are passed over.
    """
    if wanted is None:
        return re.compile(mark + rb"([^\r\n]*+)")
    other = b'%b"(?!(?:%b)")%b", %b' % (_HEAD, b"|".join(sorted(wanted)), _NAME, _REST)
    return re.compile(rb"%b(?!%b)([^\r\n]*+)" % (mark, other))


def find_misleading(record: MllogRecord) -> str | None:
    """A key that counts for a careless reader of this line. None where there is none."""
    content, start = record.block.content, record.offset
    end = content.find(b"\n", start)
    line = content[start : end if end >= 0 else None]
    return next((key for key in MISLEADING_KEYS if b'"%b"' % key.encode() in line), None)

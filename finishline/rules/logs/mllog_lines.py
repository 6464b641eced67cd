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

# A line as MLPerf's own logger spells it, up to its key.
_HEAD = rb' \{"namespace": "", "time_ms": [0-9]{13}, "event_type": "[A-Z_]{1,20}", "key": '
_NAME = rb"([A-Za-z0-9_]{1,60})"


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
        """The key of a line that cannot be read, where its logger would write it."""
        found = self.key.match(text)
        return found[1].decode() if found is not None else None


MLLOG = Format(b":::MLLOG", None, read_record, re.compile(_HEAD + b'"%b"' % _NAME))
MLP05 = Format(b":::MLPv0.5", "0.5", read_record_05, re.compile(rb".{0,400}?\) %b" % _NAME))
MLP06 = Format(b":::MLL ", "0.6", read_record_06, re.compile(rb"[0-9.]{1,30} %b ?:" % _NAME))


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

    With `wanted` only the lines with one of these keys are decoded, and lines in a spelling that is
    not MLPerf's own logger's.
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

    With `wanted` the lines that MLPerf's own logger wrote with another key are passed over.
    """
    if wanted is None:
        return re.compile(mark + rb"([^\r\n]*+)")
    other = b'%b"(?!(?:%b)")%b"' % (_HEAD, b"|".join(sorted(wanted)), _NAME[1:-1])
    return re.compile(rb"%b(?!%b)([^\r\n]*+)" % (mark, other))


def find_misleading(record: MllogRecord) -> str | None:
    """A key that counts for a careless reader of this line. None where there is none."""
    content, start = record.block.content, record.offset
    end = content.find(b"\n", start)
    line = content[start : end if end >= 0 else None]
    return next((key for key in MISLEADING_KEYS if b'"%b"' % key.encode() in line), None)

"""The lines of an MLPerf log as typed records."""

import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_record import (
    MllogItem,
    MllogRecord,
    WholeEvaluation,
    line_error,
    read_at_once,
    read_record,
)
from finishline.rules.logs.text import Block, whole_line_blocks

__all__ = [
    "MAX_MLLOG_LINES",
    "MLLOG_MARK",
    "LineFinder",
    "MllogRecord",
    "Report",
    "every_line",
    "lines_that_count",
    "read_mllog",
]

MLLOG_MARK = b":::MLLOG"
MAX_MLLOG_LINES = 200_000
AT_ONCE_BYTES = 256 * 1024  # A block takes many times its size in memory.
# The published checker finds these anywhere in a line.
MISLEADING_KEYS = (b'"global_batch_size"', b'"eval_accuracy"', b'"eval_error"', b'"run_stop"')

EVALUATION = rb' \{ANY{57}+"POINT_IN_TIME", "key": "eval_accuracy", "value": [-+.0-9e]++, "'
_KEY_LETTERS = frozenset(string.ascii_letters + string.digits + "_")

Report = Callable[[LogFormatError], None]
SetAside = Callable[[re.Match[bytes], Block], bool]


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
    """Finder of every MLLOG line; its group is the text after the mark."""
    return _finder(MLLOG_MARK + rb"(REST)")


def lines_that_count(keys: Collection[str], *, repeated: bytes = EVALUATION) -> LineFinder:
    """Finder of the MLLOG lines with one of some keys, and of all with unusual spelling.

    Most lines of a log are not needed for one figure. A line with another key, in the spelling of
    MLPerf's own logger, is skipped without being parsed. Its groups are the text of a line that
    begins with the pattern `repeated`, or else the text of any other line.
    """
    counted = b"|".join(re.escape(key.encode()) for key in sorted(keys))
    others = "".join(sorted(_KEY_LETTERS - {key[0] for key in keys})).encode()
    # Up to the event type every line of this spelling is equally long: the time has 13 digits.
    # Most keys differ from those that count in their first letter.
    head = rb' \{ANY{57}+"(?:POINT_IN_TIME|INTERVAL_(?:START|END))", "key": "'
    other = head + rb"(?:[" + others + rb"]|(?!(?:" + counted + rb')"))[A-Za-z0-9_]++"'
    # The engine looks for the first letter of a pattern, and colons are everywhere.
    mark = rb"LLOG(?!" + other + rb")(?<=" + MLLOG_MARK + rb")"
    return _finder(mark + rb"(?:(" + repeated + rb"REST)|(REST))")


def _finder(pattern: bytes) -> LineFinder:
    """The finder of a pattern in which ANY is a byte of the line and REST its rest."""
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
    at_once: bool = False,
) -> Iterator[MllogItem]:
    """The MLLOG lines that `lines` finds, in order.

    Lines with a key in `counted_keys` may not hold a key twice; nor may a line that tries to have
    two readings as to which key it has. A line that is none is reported, with file, line and field,
    and left out; `report` may raise. A line that is sound but names a key that counts where a
    careless reader would take it for one goes to `notice`. `set_aside` is shown each line that is
    in the first of two groups of `lines`, and says whether to leave it out.

    With `at_once`, for a reader that gives no notice and finds every line, lines that are all in
    order are read together, and an evaluation may come whole.
    """
    found = 0
    for block in whole_line_blocks(chunks, mark=MLLOG_MARK):
        read = read_at_once(block) if at_once and len(block.content) <= AT_ONCE_BYTES else None
        if read is not None and (count := found + _count_lines(read)) <= MAX_MLLOG_LINES:
            found = count
            yield from read
            continue
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
                report(line_error("too many lines", None, expected, "too_many_lines", file, record))
                return
            if notice is not None and record.key not in counted_keys:
                _notice_hidden(text, record, file, notice)
            yield record


def _count_lines(read: Iterable[MllogItem]) -> int:
    return sum(3 if isinstance(each, WholeEvaluation) else 1 for each in read)


def _notice_hidden(text: bytes, record: MllogRecord, file: str, notice: Report) -> None:
    for key in MISLEADING_KEYS:
        if key in text:
            name = key.decode().strip('"')
            message = f"a line of {record.key!r} with {name} in it"
            expected = f"{name} as a key, or not at all"
            code = "misleading_line"
            notice(line_error(message, record.key, expected, code, file, record))
            return

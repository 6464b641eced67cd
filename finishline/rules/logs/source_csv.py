"""Tables of measurements as CSV: one row for each moment, one column for each name."""

import csv
import io
import sys
from collections.abc import Iterator

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.source import SourceRow, read_moment
from finishline.rules.logs.text import MAX_FILE_BYTES

MOST_COLUMNS = 1000
MOST_ROWS = 1_000_000
LONGEST_CELL = 100_000


def read_csv(content: bytes, *, file: str, time: str | None) -> list[SourceRow]:
    """The rows of a table; `time` is the column of times, in seconds or as ISO dates.

    Cells of text are `words`. They, NaN and infinities are refused where they are the quality.
    Raises LogFormatError naming line and column.
    """
    if len(content) > MAX_FILE_BYTES:
        raise LogFormatError(
            f"{len(content):,} bytes", file=file, expected=f"at most {MAX_FILE_BYTES:,} bytes"
        )
    csv.field_size_limit(sys.maxsize)  # The module's own limit is the process's, and others set it.
    text = content.decode("utf-8-sig", "replace")
    table = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(table, [])]
        _check_header(header, time, file=file)
        return list(_rows(table, header, time, file=file))
    except csv.Error as error:
        raise LogFormatError(f"no CSV: {error}", file=file, line=table.line_num) from error


def _check_header(header: list[str], time: str | None, *, file: str) -> None:
    if not 0 < len(header) <= MOST_COLUMNS:
        expected = f"1 to {MOST_COLUMNS:,} names of columns"
        raise LogFormatError(f"{len(header):,} columns", file=file, line=1, expected=expected)
    if time is not None and time not in header:
        raise LogFormatError(
            f"time unknown: no column {time[:80]!r}",
            file=file,
            line=1,
            expected=f"--time with one of {', '.join(name[:80] for name in header[:20])}",
        )


def _rows(
    table: Iterator[list[str]],
    header: list[str],
    time: str | None,
    *,
    file: str,
) -> Iterator[SourceRow]:
    for number, cells in enumerate(table, 2):
        if number > MOST_ROWS:
            expected = f"at most {MOST_ROWS:,}"
            raise LogFormatError("too many rows", file=file, line=number, expected=expected)
        longest = max(map(len, cells), default=0)
        if longest > LONGEST_CELL:
            message, expected = f"a cell of {longest:,} characters", f"at most {LONGEST_CELL:,}"
            raise LogFormatError(message, file=file, line=number, expected=expected)
        named = dict(zip(header, cells, strict=False))
        seconds = None
        if time is not None and (told := named.pop(time, "").strip()):
            seconds = read_moment(told)
            if seconds is None:
                expected = "seconds or an ISO date"
                message = f"{told[:60]!r} is no time"
                raise LogFormatError(message, file=file, line=number, field=time, expected=expected)
        values = {
            name: value for name, cell in named.items() if (value := _number(cell)) is not None
        }
        words = {
            name: word
            for name, cell in named.items()
            if name not in values and (word := cell.strip())
        }
        yield SourceRow(values, seconds, line=number, words=words)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None

"""One table as a CSV file as RFC 4180 has it, in UTF-8, the names of the columns first."""

import csv
import hashlib
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.exports.cells import READERS, WRITERS, Kind

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Columns:
    """The columns of a file in their order: names, and the kind of value in each."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]


class CsvFile:
    """A file that rows are added to; it counts them and hashes what it writes."""

    def __init__(self, target: BinaryIO, columns: Columns) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._target = target
        self._digest = hashlib.sha256()
        self._writers = [WRITERS[kind] for kind in columns.kinds]
        self._write([columns.names])

    @property
    def sha256(self) -> str:
        """The hash of everything written so far."""
        return self._digest.hexdigest()

    def add(self, rows: Rows) -> None:
        """Write some rows. Raises ValueError on a text that has no UTF-8."""
        writers = self._writers
        self._write(
            [
                "" if value is None else write(value)
                for write, value in zip(writers, row, strict=True)
            ]
            for row in rows
        )
        self.rows += len(rows)

    def _write(self, lines: Iterable[Sequence[str]]) -> None:
        buffer = io.StringIO(newline="")
        # Of the two line ends the writer quotes those that are in its own: with a line feed alone a
        # carriage return in a text would end its line.
        csv.writer(buffer, lineterminator="\r\n").writerows(lines)
        content = buffer.getvalue().encode()
        self._digest.update(content)
        self.size_bytes += len(content)
        self._target.write(content)


@dataclass(frozen=True)
class Line:
    """A row as it was read, and the line of the file that it ends on."""

    number: int
    values: tuple[Any, ...]


def read_csv(path: Path, columns: Columns, *, name: str) -> Iterator[Line]:
    """Every row of a file. Raises RuleError naming `name`, the line, the column, what is expected.

    A cell may have line ends in it, so a row's line is the one that it ends on.
    """
    csv.field_size_limit(sys.maxsize)  # A curve has more than the module's 128 KiB.
    readers = [READERS[kind] for kind in columns.kinds]
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            _check_header(next(lines, []), columns, name)
            for cells in lines:
                line = lines.line_num
                if len(cells) != len(readers):
                    raise RuleError(
                        count_text(len(cells), "cell"),
                        file=name,
                        line=line,
                        expected=f"{len(readers)}",
                    )
                try:
                    values = tuple(
                        [
                            None if not cell else read(cell)
                            for read, cell in zip(readers, cells, strict=True)
                        ]
                    )
                except (ValueError, RecursionError):
                    _name_cell(cells, columns, name, line)
                    raise
                yield Line(line, values)
    except (UnicodeDecodeError, csv.Error) as error:
        raise RuleError(str(error), file=name, line=line + 1, expected="CSV in UTF-8") from error
    except OSError as error:
        raise RuleError(
            f"cannot be read ({error.strerror})", file=name, expected="a CSV file"
        ) from error


def _check_header(found: Sequence[str], columns: Columns, name: str) -> None:
    if tuple(found) != columns.names:
        raise RuleError(
            f"got {','.join(found)[:200]!r}", file=name, line=1, expected=",".join(columns.names)
        )


def _name_cell(cells: Sequence[str], columns: Columns, name: str, line: int) -> None:
    """Raise RuleError about the first cell of a row that does not read."""
    for column, kind, cell in zip(columns.names, columns.kinds, cells, strict=True):
        try:
            if cell:
                READERS[kind](cell)
        except (ValueError, RecursionError) as error:
            raise RuleError(
                f"cannot be read: {error}",
                file=name,
                line=line,
                field=column,
                expected=f"{kind} or nothing",
            ) from error

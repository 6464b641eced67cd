"""Tables as files: CSV as RFC 4180 has it, and Parquet where pyarrow is installed.

Each cell reads back as exactly the same value. An absent value is an empty cell. A text that is
empty, or begins with one of `'=+-@`, a tab or a line end, has a `'` in front: so an empty text is
no absent one, and a spreadsheet runs no formula that a stranger wrote. Numbers are as Python writes
them, which is the shortest text of that number.
"""

import csv
import hashlib
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
from sqlalchemy import JSON, Boolean, Date, DateTime, Float, Integer, String
from sqlalchemy.types import TypeEngine

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.base.database import moment_text

Kind = Literal["text", "json", "integer", "number", "boolean", "moment", "date"]
GUARD = "'"
GUARDED = ("'", "=", "+", "-", "@", "\t", "\r", "\n")
LARGEST_INTEGER = 2**63 - 1


def kind_of(column_type: TypeEngine[Any]) -> Kind:
    """The kind of a column's values. Raises TypeError on a type that no cell is written for."""
    found = getattr(column_type, "impl_instance", column_type)
    for kind, each in CELLS.items():
        if isinstance(found, each.column_type):
            return kind
    raise TypeError(f"no cell is written for a column of type {column_type!r}")


def write_text(value: str) -> str:
    """A text, guarded where it would read as absent or as a formula."""
    return GUARD + value if not value or value.startswith(GUARDED) else value


def read_text(cell: str) -> str:
    """The text of a cell. Raises ValueError."""
    if "\0" in cell:
        raise ValueError("a character 0, which PostgreSQL cannot keep")
    if cell.startswith(GUARD):
        return cell[1:]
    if cell.startswith(GUARDED):
        raise ValueError(f"{cell[:40]!r} without ' in front")
    return cell


def read_json_text(cell: str) -> str:
    """The JSON text of a cell, which is not changed. Raises ValueError."""
    text = read_text(cell)
    orjson.loads(text)
    return text


def read_integer(cell: str) -> int:
    """Raises ValueError unless it is an integer that a database holds."""
    value = int(cell)
    if str(value) != cell or abs(value) > LARGEST_INTEGER:
        raise ValueError(f"{cell[:40]!r}")
    return value


def read_number(cell: str) -> float:
    """Raises ValueError unless it is a number."""
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(f"{cell[:40]!r}")
    return value


def read_boolean(cell: str) -> bool:
    """Raises ValueError unless it is true or false."""
    if cell not in ("true", "false"):
        raise ValueError(f"{cell[:40]!r}")
    return cell == "true"


def read_moment(cell: str) -> datetime:
    """Raises ValueError unless it is a moment with a timezone."""
    value = datetime.fromisoformat(cell)
    if value.tzinfo is None:
        raise ValueError(f"{cell[:40]!r} without a timezone")
    return value


@dataclass(frozen=True)
class Cells:
    """Cells of one kind: the type of their columns, here and in Parquet, and their text."""

    column_type: type[TypeEngine[Any]]
    arrow_type: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


CELLS: dict[Kind, Cells] = {
    "json": Cells(JSON, "string", write_text, read_json_text),  # As the database keeps it.
    "boolean": Cells(Boolean, "bool_", lambda value: "true" if value else "false", read_boolean),
    "moment": Cells(DateTime, "timestamp", moment_text, read_moment),
    "date": Cells(Date, "date32", date.isoformat, date.fromisoformat),
    "integer": Cells(Integer, "int64", str, read_integer),
    "number": Cells(Float, "float64", lambda value: repr(float(value)), read_number),
    "text": Cells(String, "string", write_text, read_text),
}


def known_kind(name: str) -> Kind:
    """A kind by its name. Raises ValueError on another one."""
    for kind in CELLS:
        if kind == name:
            return kind
    raise ValueError(f"{name[:40]!r}")


Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Columns:
    """The columns of a file in their order: names, and the kind of value in each."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]


class CsvFile:
    """A file that rows are added to; counts rows and bytes, and hashes them."""

    def __init__(self, target: BinaryIO, columns: Columns) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._target = target
        self._digest = hashlib.sha256()
        self._writers = [CELLS[kind].write for kind in columns.kinds]
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
    """Every row of a file. Raises RuleError naming file, line, column and expectation.

    A cell may have line ends in it, so a row's line is the one that it ends on.
    """
    csv.field_size_limit(sys.maxsize)  # A curve has more than the module's 128 KiB.
    readers = [CELLS[kind].read for kind in columns.kinds]
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
                CELLS[kind].read(cell)
        except (ValueError, RecursionError) as error:
            raise RuleError(
                f"cannot be read: {error}",
                file=name,
                line=line,
                field=column,
                expected=f"{kind} or nothing",
            ) from error


ROWS_IN_GROUP = 50_000
LETTERS_IN_GROUP = 16 * 1024 * 1024


def has_parquet() -> bool:
    """Whether pyarrow is there: it is an extra of its own."""
    return find_spec("pyarrow") is not None


class ParquetFile:
    """A file that rows are added to; the last ones are written when it is closed."""

    def __init__(self, path: Path, columns: Columns) -> None:
        import pyarrow
        from pyarrow import parquet

        self._arrow = pyarrow
        fields = [
            pyarrow.field(name, _type_of(pyarrow, kind))
            for name, kind in zip(columns.names, columns.kinds, strict=True)
        ]
        self._schema = pyarrow.schema(fields)
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[Any] = []
        self._rows = self._letters = 0

    def add(self, rows: Rows) -> None:
        """Take some rows."""
        columns = list(zip(*rows, strict=True))
        arrays = [
            self._arrow.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        batch = self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._letters += batch.nbytes
        if self._rows >= ROWS_IN_GROUP or self._letters >= LETTERS_IN_GROUP:
            self._write_group()

    def close(self) -> None:
        """Write the waiting rows, and the end of the file."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(
                self._arrow.Table.from_batches(self._waiting, schema=self._schema)
            )
        self._waiting, self._rows, self._letters = [], 0, 0


def _type_of(arrow: Any, kind: Kind) -> Any:
    details = {"unit": "us", "tz": "UTC"} if kind == "moment" else {}
    return getattr(arrow, CELLS[kind].arrow_type)(**details)

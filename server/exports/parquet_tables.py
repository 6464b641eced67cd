"""One table as a Parquet file, where pyarrow is installed: for whoever studies, not for importing.

JSON is text there as well. Rows are written in groups, so that memory does not grow with a table.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from server.exports.cells import Kind
from server.exports.csv_tables import Columns, Rows

ROWS_IN_GROUP = 50_000
LETTERS_IN_GROUP = 16 * 1024 * 1024


def has_parquet() -> bool:
    """Whether pyarrow is there: it is an extra of its own."""
    return find_spec("pyarrow") is not None


class ParquetFile:
    """A file that rows are added to; what is added last is written when it is closed."""

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
        """Write what is waiting, and the end of the file."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(
                self._arrow.Table.from_batches(self._waiting, schema=self._schema)
            )
        self._waiting, self._rows, self._letters = [], 0, 0


def _type_of(arrow: Any, kind: Kind) -> Any:
    types = {
        "text": arrow.string(),
        "json": arrow.string(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
        "moment": arrow.timestamp("us", tz="UTC"),
        "date": arrow.date32(),
    }
    return types[kind]

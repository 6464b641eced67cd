"""A cell reads back as exactly what was written, and runs nowhere as a formula."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.errors import RuleError
from server.operations.table_files import Columns, CsvFile, read_csv

COLUMNS = Columns(
    ("text", "json", "integer", "number", "boolean", "moment", "date"),
    ("text", "json", "integer", "number", "boolean", "moment", "date"),
)
# Every Unicode character but 0 and halves of pairs, which no database of ours holds.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0")) | st.text("'=-\t\r\n,\"a")
ROW = st.tuples(
    st.none() | TEXT,
    st.none() | (st.none() | TEXT | st.floats(allow_nan=False) | st.lists(TEXT)).map(json.dumps)
    .filter(lambda text: "Infinity" not in text and "\\u0000" not in text),
    st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.booleans(),
    st.none() | st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC, fold=0)),
    st.none() | st.dates(),
)  # fmt: skip


def write(rows: list[tuple[Any, ...]]) -> bytes:
    target = io.BytesIO()
    CsvFile(target, COLUMNS).add(rows)
    return target.getvalue()


@given(st.lists(ROW, max_size=5))
def test_rows_read_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    path.write_bytes(write(rows))
    read = [line.values for line in read_csv(path, COLUMNS, name="cells.csv")]
    assert repr(read) == repr(rows)  # -0.0 is no 0.0, and True no 1.


def test_what_is_empty_is_told_from_what_is_absent() -> None:
    content = write([("", "null", 0, 0.0, False, None, None), (None,) * 7])
    assert content.decode().splitlines()[1:] == ["',null,0,0.0,false,,", ",,,,,,"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", "'=1", "\n=1"])
def test_no_cell_begins_as_a_formula(text: str) -> None:
    cells = list(csv.reader(io.StringIO(write([(text, *(None,) * 6)]).decode(), newline="")))
    assert cells[1][0] == "'" + text


def test_a_moment_elsewhere_is_written_in_utc() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    content = write([(None, None, None, None, None, moment, date(2030, 1, 2))])
    assert content.decode().splitlines()[1] == (",,,,,2030-01-02T01:04:05.000006+00:00,2030-01-02")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("=1,,,,,,", "text"),
        (",{,,,,,", "json"),
        (",,1.0,,,,", "integer"),
        (",,9223372036854775808,,,,", "integer"),
        (",,,nan,,,", "number"),
        (",,,,yes,,", "boolean"),
        (",,,,,2030-01-02T03:04:05,", "moment"),
        (",,,,,,2030-13-01", "date"),
    ],
)
def test_a_cell_that_does_not_read_is_named(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes(write([("two\nlines", *(None,) * 6)]) + line.encode() + b"\r\n")
    with pytest.raises(RuleError) as error:
        list(read_csv(path, COLUMNS, name="tables/cells.csv"))
    assert (error.value.file, error.value.line, error.value.field) == ("tables/cells.csv", 4, field)


@pytest.mark.parametrize("content", [b"text,other\n", write([]) + b"a,b\r\n", write([]) + b'"a'])
def test_another_shape_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes(content)
    with pytest.raises(RuleError) as error:
        list(read_csv(path, COLUMNS, name="tables/cells.csv"))
    assert str(error.value).startswith("tables/cells.csv line ")

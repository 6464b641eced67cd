"""One cell of a table as text that reads back as exactly the same value.

An absent value is an empty cell. A text that is empty, or begins with one of `'=+-@`, a tab or a
line end, has a `'` in front: so an empty text is no absent one, and a spreadsheet runs no formula
that a stranger wrote. Numbers are as Python writes them, which is the shortest text of that number.
"""

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal, get_args

import orjson
from sqlalchemy import JSON, Boolean, Date, DateTime, Float, Integer, String
from sqlalchemy.types import TypeEngine

from server.database import moment_text

Kind = Literal["text", "json", "integer", "number", "boolean", "moment", "date"]
KINDS: tuple[Kind, ...] = get_args(Kind)
GUARD = "'"
GUARDED = ("'", "=", "+", "-", "@", "\t", "\r", "\n")
LARGEST_INTEGER = 2**63 - 1

_BY_TYPE: tuple[tuple[type[TypeEngine[Any]], Kind], ...] = (
    (JSON, "json"),
    (Boolean, "boolean"),
    (DateTime, "moment"),
    (Date, "date"),
    (Integer, "integer"),
    (Float, "number"),
    (String, "text"),
)


def kind_of(column_type: TypeEngine[Any]) -> Kind:
    """The kind of a column's values. Raises TypeError on a type that no cell is written for."""
    found = getattr(column_type, "impl_instance", column_type)
    for known, kind in _BY_TYPE:
        if isinstance(found, known):
            return kind
    raise TypeError(f"no cell is written for a column of type {column_type!r}")


def write_text(value: str) -> str:
    """A text, guarded where it would read as absent or as a formula."""
    return GUARD + value if not value or value.startswith(GUARDED) else value


def write_number(value: float) -> str:
    """A float; one that is whole stays a float."""
    return repr(float(value))


WRITERS: dict[Kind, Callable[[Any], str]] = {
    "text": write_text,
    "json": write_text,  # As the database keeps it, to the letter.
    "integer": str,
    "number": write_number,
    "boolean": lambda value: "true" if value else "false",
    "moment": moment_text,
    "date": date.isoformat,
}


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


READERS: dict[Kind, Callable[[str], Any]] = {
    "text": read_text,
    "json": read_json_text,
    "integer": read_integer,
    "number": read_number,
    "boolean": read_boolean,
    "moment": read_moment,
    "date": date.fromisoformat,
}


def known_kind(name: object) -> Kind:
    """A kind by its name. Raises ValueError on another one."""
    if name not in KINDS:
        raise ValueError(f"{str(name)[:40]!r}")
    return next(kind for kind in KINDS if kind == name)

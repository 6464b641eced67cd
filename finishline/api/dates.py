"""Dates in queries and forms."""

from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError


def read_day(value: Any) -> date:
    """The day a text names; raises PydanticCustomError for anything else."""
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise PydanticCustomError("no_day", "no day; expected one like 2026-11-21") from None


def _read_field(value: Any) -> date | None:
    return None if value is None or value == "" else read_day(value)


Day = Annotated[date, BeforeValidator(read_day)]
# The field of a form or of a query string, which is sent empty where it is left so.
DayField = Annotated[
    date | None,
    BeforeValidator(_read_field),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"const": ""}, {"type": "null"}]}
    ),
]

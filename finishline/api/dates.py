"""Dates in queries and forms."""

from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from finishline.rules.table import read_day


def _read_field(value: Any) -> object:
    return None if value is None or value == "" else read_day(value)


# The field of a form or of a query string, which is sent empty where it is left so.
DayField = Annotated[
    date | None,
    BeforeValidator(_read_field),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"const": ""}, {"type": "null"}]}
    ),
]

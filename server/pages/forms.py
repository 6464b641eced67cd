"""Fields that a browser sends: what is left empty asks for nothing, what is wrong is named."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

T = TypeVar("T", bound=BaseModel)
Errors = dict[str, str]
NUMBERS = {
    "int_parsing": "Expected a whole number.",
    "int_from_float": "Expected a whole number.",
    "float_parsing": "Expected a number.",
}
MISSING = ("missing", "string_too_short", "string_pattern_mismatch", "too_short")


def filled(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields somebody filled in, without blanks around them."""
    return {name: value.strip() for name, value in fields.items() if value.strip()}


def read_query(schema: type[T], request: Request) -> T:
    """What the query of a page asks for. Raises RequestValidationError naming each wrong field."""
    try:
        return schema.model_validate(filled(request.query_params))
    except ValidationError as error:
        found = [dict(item) | {"loc": ("query", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from error


def read_form(schema: type[T], fields: Mapping[str, Any]) -> tuple[T | None, Errors]:
    """What a form asks for, or None and a sentence for each field that is wrong."""
    try:
        return schema.model_validate(fields), {}
    except ValidationError as error:
        found: Errors = {}
        for item in error.errors():
            place = str(item["loc"][0]) if item["loc"] else "form"
            found.setdefault(place, sentence_of(item))
        return None, found


def sentence_of(item: ErrorDetails) -> str:
    """What is wrong with a field, in a sentence for people."""
    if item["type"] in MISSING and not str(item["input"] or "").strip():
        return "Fill this in."
    if item["type"] == "missing":
        return "Fill this in."
    if item["type"] in NUMBERS:
        return NUMBERS[item["type"]]
    message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].upper() + message[1:].rstrip(".") + "."

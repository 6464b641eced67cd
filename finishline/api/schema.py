"""Base classes of every schema, and types that several share."""

from datetime import date
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from finishline.rules.table import read_day


class Schema(BaseModel):
    """A frozen value. Fields that it does not know are left out."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, row: object, **others: Any) -> Self:
        """Build from the attributes of `row` that are named as fields, and from `others`."""
        names = [name for name in cls.model_fields if name not in others and hasattr(row, name)]
        return cls(**{name: getattr(row, name) for name in names}, **others)


class Body(Schema):
    """The body or the query of a request, in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """The settings of a body whose description has this example. Texts may stand for dates."""
    return ConfigDict(strict=False, json_schema_extra={"examples": [fields]})


def _refuse_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


# For a whole number of a request: pydantic takes true for 1. It stands after the limits, which
# would be missing from the API's document.
NO_FLAG = BeforeValidator(_refuse_flag)


def _sentence(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise PydanticCustomError("no_reason", "expected a sentence")
    return text.strip()


Reason = Annotated[str, Field(min_length=1, max_length=2000)]
Sentence = Annotated[Reason, AfterValidator(_sentence)]


# The field of a form or of a query string, which is sent empty where it is left so.
DayField = Annotated[
    date | None,
    BeforeValidator(lambda value: None if value in (None, "") else read_day(value)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"const": ""}, {"type": "null"}]}
    ),
]

"""Base class of every schema."""

from typing import Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _refuse_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


# For a whole number of a request: pydantic takes true for 1. It stands after the limits, which
# would be missing from the API's document.
NO_FLAG = BeforeValidator(_refuse_flag)


class Schema(BaseModel):
    """A frozen value; fields that it does not know are left out."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def of(cls, row: object, **others: Any) -> Self:
        """Build from the attributes of `row` that are named as fields, and from `others`."""
        names = [name for name in cls.model_fields if name not in others and hasattr(row, name)]
        return cls(**{name: getattr(row, name) for name in names}, **others)

"""The base class of every schema."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

# A name, or a row with a name.
Name = Annotated[str, BeforeValidator(lambda value: getattr(value, "name", value))]


class Schema(BaseModel):
    """A frozen value. Unknown fields are left out."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, row: object, **others: Any) -> Self:
        """Build from attributes of `row` with the names of fields, and from `others`."""
        names = [name for name in cls.model_fields if name not in others and hasattr(row, name)]
        return cls(**{name: getattr(row, name) for name in names}, **others)

"""Base class of every schema."""

from typing import Any

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

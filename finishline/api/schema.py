"""Base class of every schema."""

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """A frozen value; fields that it does not know are left out."""

    model_config = ConfigDict(frozen=True)

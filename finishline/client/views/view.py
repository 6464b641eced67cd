"""Base class of all responses."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A frozen value. Fields that only a newer server knows are kept, as attributes too."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(View):
    """A part of a list; `next_cursor` asks for the next, None on the last."""

    next_cursor: str | None

"""Base class of all responses."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from finishline.client.errors import Unavailable


class View(BaseModel):
    """A frozen value. Fields that only a newer server knows are kept, as attributes too."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(View):
    """A part of a list; `next_cursor` asks for the next, None on the last."""

    next_cursor: str | None


ViewType = TypeVar("ViewType", bound=View)
PageType = TypeVar("PageType", bound=Page)


def read_view(kind: type[ViewType], document: object) -> ViewType:
    """The document as a value of this kind. Raises Unavailable if it is none."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise Unavailable(
            f"The server's answer is no {kind.__name__} (field {place}: {first['msg']}); "
            "update the client or the server so that both are of one version."
        ) from error

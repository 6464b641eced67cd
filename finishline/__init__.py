"""A Python client of a Finishline server: submit runs, read boards, watch replays."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from finishline.errors import (
    Conflict,
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Problem,
    Refused,
    TooManyRequests,
    Unavailable,
)

if TYPE_CHECKING:
    from finishline.client import Client

__all__ = [
    "Client",
    "Conflict",
    "FinishlineError",
    "NoAnswer",
    "NotAllowed",
    "NotFound",
    "NotSignedIn",
    "Problem",
    "Refused",
    "TooManyRequests",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    """`Client`, loaded when it is asked for: the command line needs HTTP and no typed answers."""
    if name != "Client":
        raise AttributeError(name)
    return import_module("finishline.client").Client

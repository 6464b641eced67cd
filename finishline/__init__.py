"""A Python client of a Finishline server: submit runs, read boards, watch replays."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from finishline.client.client import Client
    from finishline.client.errors import (
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

    __version__: str

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
    """Load the client or its errors at first use, because rules and commands work without."""
    if name == "__version__":
        from importlib.metadata import version  # Takes 40 ms.

        return version("finishline-tta")
    if name not in __all__:
        raise AttributeError(name)
    module = "client" if name == "Client" else "errors"
    return getattr(import_module(f"finishline.client.{module}"), name)

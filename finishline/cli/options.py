"""The flags of the root, and the options that several commands share."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from finishline.cli.errors import ExitCode
from finishline.cli.screen import open_screen
from finishline.profiles import DEFAULT_URL, ProfileError, chosen_profile

Function = Callable[..., int]


@dataclass
class Root:
    """Flags of the root in the current call."""

    as_json: bool = False
    url: str | None = None
    token: str | None = None

    @property
    def known_server(self) -> str | None:
        """Return the address in --url, the environment or a login."""
        if named := self.url or os.environ.get("FINISHLINE_URL"):
            return named
        try:
            profile = chosen_profile()
        except ProfileError:
            return None  # A command that asks the server says so.
        return None if profile is None else profile.url

    @property
    def is_server_known(self) -> bool:
        return self.known_server is not None or self.token is not None

    @property
    def server(self) -> str:
        return self.known_server or DEFAULT_URL


ROOT = Root()
BenchmarksDir = Annotated[
    Path | None,
    Option(
        "--benchmarks-dir",
        envvar="FINISHLINE_BENCHMARKS_DIR",
        help="Folder of benchmark definitions (default: the server's, where it is installed, and "
        "benchmarks/ here).",
    ),
]
Data = Annotated[
    Path, Option("--data", envvar="FINISHLINE_DATA_DIR", help="Folder of the data sets.")
]
Limit = Annotated[int, Option("--limit", min=1, max=1000, help="How many to list.")]


def shows(function: Callable[..., int | None]) -> Function:
    """Give a function a screen."""

    def run(**given: Any) -> int:
        return int(function(open_screen(as_json=ROOT.as_json), **given) or ExitCode.OK)

    return declared(run, function, given=1)


def declared(run: Function, function: Callable[..., Any], *, given: int) -> Function:
    """Declare a command as its function, without the first parameters."""
    takes = list(signature(function).parameters.values())[given:]
    own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in takes]
    vars(run)["__signature__"] = Signature(own)
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run

"""The options that several commands share."""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from finishline.cli.errors import ExitCode
from finishline.cli.screen import open_screen
from finishline.profiles import DEFAULT_URL

__all__ = [
    "DEFAULT_URL", "BenchmarksDir", "Data", "Function", "Json",
    "Limit", "Named", "ServerToAsk", "Token", "Url", "shows", "with_options",
]  # fmt: skip

Function = Callable[..., int]

Url = Annotated[str, Option("--url", envvar="FINISHLINE_URL", help="Address of the server.")]
ServerToAsk = Annotated[
    str | None, Option("--url", help="Server to ask for the definition and the phase.")
]
Token = Annotated[
    str | None, Option("--token", envvar="FINISHLINE_TOKEN", help="API token (fl_...).")
]
Json = Annotated[bool, Option("--json", help="Write one JSON document to stdout and nothing else.")]
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
Named = Annotated[str, Argument(help="Id of a benchmark, or its TOML file.")]


def shows(function: Callable[..., ExitCode | None]) -> Function:
    """Give a function a screen, and its command --json."""

    def run(*, as_json: bool, **given: Any) -> int:
        return int(function(open_screen(as_json=as_json), **given) or ExitCode.OK)

    as_json = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    return with_options(run, function, [as_json], given=1)


def with_options(
    run: Function, function: Callable[..., Any], more: Sequence[Parameter], *, given: int
) -> Function:
    """Declare a command as its function, without the first parameters, and with more options."""
    takes = list(signature(function).parameters.values())[given:]
    own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in takes]
    vars(run)["__signature__"] = Signature([*own, *more])
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run

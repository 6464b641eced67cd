"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Option

from finishline.profiles import DEFAULT_URL

__all__ = [
    "DEFAULT_URL",
    "DEFAULT_VAR",
    "BehindProxy",
    "BenchmarksDir",
    "Data",
    "Json",
    "Limit",
    "ServerToAsk",
    "Token",
    "Url",
    "Var",
]

DEFAULT_VAR = Path("var")

Url = Annotated[str, Option("--url", envvar="FINISHLINE_URL", help="Address of the server.")]
ServerToAsk = Annotated[
    str | None, Option("--url", help="Server to ask for the definition and the phase.")
]
Token = Annotated[
    str | None,
    Option("--token", envvar="FINISHLINE_TOKEN", help="API token (fl_...)."),
]
Json = Annotated[bool, Option("--json", help="Write one JSON document to stdout and nothing else.")]
Var = Annotated[Path, Option("--var", help="Folder for the database, tokens, logs and artifacts.")]
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
BehindProxy = Annotated[
    bool,
    Option("--behind-proxy", help="Believe a proxy on this machine on clients' addresses."),
]
Limit = Annotated[int, Option("--limit", min=1, max=1000, help="How many to list.")]

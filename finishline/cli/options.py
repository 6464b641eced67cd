"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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

Url = Annotated[str, typer.Option("--url", envvar="FINISHLINE_URL", help="Address of the server.")]
ServerToAsk = Annotated[
    str | None, typer.Option("--url", help="Server to ask for the definition and the phase.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="FINISHLINE_TOKEN", help="API token (fl_...)."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Write one JSON document to stdout and nothing else.")
]
Var = Annotated[
    Path, typer.Option("--var", help="Folder for the database, tokens, logs and artifacts.")
]
BenchmarksDir = Annotated[
    Path | None,
    typer.Option(
        "--benchmarks-dir",
        envvar="FINISHLINE_BENCHMARKS_DIR",
        help="Folder of benchmark definitions (default: the server's, where it is installed, and "
        "benchmarks/ here).",
    ),
]
Data = Annotated[
    Path, typer.Option("--data", envvar="FINISHLINE_DATA_DIR", help="Folder of the data sets.")
]
BehindProxy = Annotated[
    bool,
    typer.Option("--behind-proxy", help="Believe a proxy on this machine on clients' addresses."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to list.")]

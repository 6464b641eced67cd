"""`finishline score`: every figure of published archives, from their raw logs, offline."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from finishline.cli.definitions import read_benchmarks, read_definition, with_server_definitions
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import Token, shows
from finishline.cli.records import (
    csv_lines,
    find_in,
    json_line,
    record_table,
    score_found,
    summary_lines,
)
from finishline.cli.screen import Screen, open_console
from finishline.rules.archive.score import Found, Record
from finishline.rules.benchmarks.benchmark import Benchmark


class Points(StrEnum):
    """Which reference convergence points count."""

    PRUNED = "pruned"
    FULL = "full"


class Format(StrEnum):
    """How records are written."""

    JSON = "json"
    CSV = "csv"
    TABLE = "table"


Paths = Annotated[
    list[Path],
    Argument(metavar="PATH...", help="DAWNBench trees, MLPerf packages or single files."),
]
Definitions = Annotated[
    Path | None,
    Option(
        "--benchmarks",
        "--benchmarks-dir",
        envvar="FINISHLINE_BENCHMARKS_DIR",
        help="Folder of benchmark definitions, or one definition file (*.toml).",
    ),
]
ServerOfDefinitions = Annotated[
    str | None, Option("--url", help="Also use the definitions of this server.")
]
Rcp = Annotated[
    Points, Option("--rcp", help="Reference convergence points: pruned, or all of them.")
]
Summary = Annotated[
    bool, Option("--table", help="A round's summary as CSV, in MLCommons' own columns.")
]
As = Annotated[Format, Option("--format", help="JSON lines, CSV, or a table for people.")]


@shows
def score(
    screen: Screen,
    paths: Paths,
    benchmarks_dir: Definitions = None,
    rcp: Rcp = Points.PRUNED,
    as_format: As = Format.JSON,
    table: Summary = False,
    url: ServerOfDefinitions = None,
    token: Token = None,
) -> None:
    """Score the submissions in published archives: one record each, with what is wrong with it."""
    if screen.as_json and (table or as_format is not Format.JSON):
        raise CliError("--json writes no CSV and no table.", exit_code=ExitCode.USAGE)
    benchmarks = with_server_definitions(_definitions(benchmarks_dir), url, token)
    found = [find_in(path) for path in paths]
    if not any(each.submissions for each in found):
        raise CliError(
            "No submission found. Pass a DAWNBench tree (TASK/train/*.json), an MLPerf "
            "package (ORG/results/SYSTEM/BENCHMARK/result_0.txt) or a log.",
            exit_code=ExitCode.REFUSED,
        )
    records: Iterable[Record] = _records(found, benchmarks, pruned=rcp is Points.PRUNED)
    if sys.stderr.isatty() and (as_format is Format.TABLE or not sys.stdout.isatty()):
        records = _with_progress(records, total=sum(len(each.submissions) for each in found))
    if screen.as_json:
        screen.answer({"records": list(records)}, ())
    elif table:
        sys.stdout.writelines(summary_lines(records))
    else:
        _write(records, as_format)


def _definitions(given: Path | None) -> dict[str, Benchmark]:
    if given is None or given.suffix != ".toml":
        return read_benchmarks(given)
    definition = read_definition(given)
    return read_benchmarks(None) | {definition.benchmark_id: definition}


def _records(
    found: Sequence[Found], benchmarks: dict[str, Benchmark], *, pruned: bool
) -> Iterator[Record]:
    for each in found:
        yield from score_found(each, benchmarks, pruned=pruned)


def _with_progress(records: Iterable[Record], *, total: int) -> Iterable[Record]:
    """The records, with a bar where no record is written to the same terminal meanwhile."""
    return track(records, "Scoring", total=total, console=Console(stderr=True), transient=True)


def _write(records: Iterable[Record], as_format: Format) -> None:
    if as_format is Format.TABLE:
        open_console().print(record_table(records))
        return
    lines = csv_lines(records) if as_format is Format.CSV else map(json_line, records)
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()

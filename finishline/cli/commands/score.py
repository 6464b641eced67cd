"""`finishline score`: every figure of published archives, from their raw logs, offline."""

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from finishline.cli.definitions import read_benchmarks, read_definition, with_server_definitions
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import ROOT, shows
from finishline.cli.records import csv_lines, find_in, json_line, record_table, summary_lines
from finishline.cli.screen import Screen, open_console
from finishline.rules.archive.score import Record, score_found

Format = Literal["json", "csv", "table"]
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
Rcp = Annotated[
    Literal["pruned", "full"],
    Option("--rcp", help="Reference convergence points: pruned, or all of them."),
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
    rcp: Rcp = "pruned",
    as_format: As = "json",
    table: Summary = False,
) -> None:
    """Score the submissions in published archives: one record each, with its problems.

    --url also uses the definitions of that server.
    """
    if screen.as_json and (table or as_format != "json"):
        raise UsageError("--json writes no CSV and no table.")
    if benchmarks_dir is not None and benchmarks_dir.suffix == ".toml":
        definition = read_definition(benchmarks_dir)
        known = read_benchmarks(None) | {definition.benchmark_id: definition}
    else:
        known = read_benchmarks(benchmarks_dir)
    benchmarks = with_server_definitions(known, ROOT.url, ROOT.token)
    found = [find_in(path) for path in paths]
    if not any(each.submissions for each in found):
        raise CliError(
            "No submission found. Pass a DAWNBench tree (TASK/train/*.json), an MLPerf "
            "package (ORG/results/SYSTEM/BENCHMARK/result_0.txt) or a log."
        )
    records: Iterable[Record] = chain.from_iterable(
        score_found(each, benchmarks, pruned=rcp == "pruned") for each in found
    )
    if sys.stderr.isatty() and (as_format == "table" or not sys.stdout.isatty()):
        # A bar where no record is written to the same terminal meanwhile.
        total, bar = sum(len(each.submissions) for each in found), Console(stderr=True)
        records = track(records, "Scoring", total=total, console=bar, transient=True)
    if screen.as_json:
        screen.answer({"records": list(records)}, ())
    elif table:
        sys.stdout.writelines(summary_lines(records))
    else:
        _write(records, as_format)


def _write(records: Iterable[Record], as_format: Format) -> None:
    if as_format == "table":
        open_console().print(record_table(records))
        return
    lines = csv_lines(records) if as_format == "csv" else map(json_line, records)
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()

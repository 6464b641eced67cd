"""`finishline score`: compute every figure of published archives from their raw logs, offline."""

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from finishline.cli.definitions import read_benchmarks, read_definition, with_server_definitions
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import ROOT, shows
from finishline.cli.records import (
    csv_lines,
    find_in,
    flat_csv_lines,
    json_line,
    record_table,
    summary_lines,
)
from finishline.cli.screen import Screen, open_console
from finishline.cli.speedruns import score_nanogpt
from finishline.rules.archive.algoperf import score_algoperf
from finishline.rules.archive.score import Record, score_found

Output = Literal["json", "csv", "table"]


class Format(NamedTuple):
    """A format for --format: `score` makes the records of paths, and `listing` is their table."""

    score: Callable[[list[Path], str | None, str | None], Iterable[Record]]
    listing: str


FORMATS = {
    "algoperf": Format(lambda paths, *_: score_algoperf(paths), "algoperf"),
    "nanogpt": Format(score_nanogpt, "speedruns"),
}
Paths = Annotated[
    list[Path],
    Argument(
        metavar="PATH...",
        help="DAWNBench trees, MLPerf packages, single files, or an archive of --format.",
    ),
]
FormatName = Annotated[
    str | None,
    Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Format of the archive (default: DAWNBench or MLPerf, by its files).",
    ),
]
Pattern = Annotated[
    str | None,
    Option(
        "--pattern",
        help="Regular expression for the evaluations of another speedrun, with the named groups "
        "quality, step, and ms or seconds.",
    ),
]
Target = Annotated[
    str | None,
    Option("--target", help="Required mean quality: 3.28 is at most, '>=94' at least."),
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
As = Annotated[Output, Option("--as", help="JSON lines, CSV, or a table for people.")]


@shows
def score(
    screen: Screen,
    paths: Paths,
    archive_format: FormatName = None,
    pattern: Pattern = None,
    target: Target = None,
    benchmarks_dir: Definitions = None,
    rcp: Rcp = "pruned",
    output: As = "json",
    table: Summary = False,
) -> None:
    """Score the submissions in published archives: one record each, with its problems.

    --url adds the definitions of a server.
    """
    if screen.as_json and (table or output != "json"):
        raise UsageError("--json writes no CSV and no table.")
    if (pattern or target) and archive_format != "nanogpt":
        raise UsageError("--pattern and --target need --format nanogpt.")
    if archive_format is None:
        records, count = _submissions(paths, benchmarks_dir, rcp)
    elif archive_format not in FORMATS:
        expected = " or ".join(FORMATS)
        hint = "Hint: --as csv and --as table choose the output."
        raise UsageError(f"--format {archive_format!r}: expected {expected}. {hint}")
    elif table:
        raise UsageError("--table is for MLPerf packages.")
    else:
        records, count = FORMATS[archive_format].score(paths, pattern, target), None
    if sys.stderr.isatty() and (output == "table" or not sys.stdout.isatty()):
        # Show a bar where records go elsewhere than this terminal.
        bar = Console(stderr=True)
        records = track(records, "Scoring", total=count, console=bar, transient=True)
    if screen.as_json:
        screen.answer({"records": list(records)}, ())
    elif table:
        sys.stdout.writelines(summary_lines(records))
    else:
        _write(records, output, archive_format)


def _submissions(
    paths: list[Path], benchmarks_dir: Path | None, rcp: str
) -> tuple[Iterable[Record], int]:
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
    records = chain.from_iterable(
        score_found(each, benchmarks, pruned=rcp == "pruned") for each in found
    )
    return records, sum(len(each.submissions) for each in found)


def _write(records: Iterable[Record], output: Output, archive_format: str | None) -> None:
    if output == "table":
        name = FORMATS[archive_format].listing if archive_format else "scores"
        open_console().print(record_table(records, name))
        return
    if output == "csv":
        lines = csv_lines(records) if archive_format is None else flat_csv_lines(records)
    else:
        lines = map(json_line, records)
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()

"""`finishline score`: compute every figure of published archives from their raw logs, offline.

Speedruns are the records of NanoGPT, and logs that a pattern of yours reads.
"""

import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
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
    open_archive,
    record_table,
    summary_lines,
)
from finishline.cli.screen import Screen, open_console
from finishline.rules.archive import nanogpt
from finishline.rules.archive.algoperf import score_algoperf
from finishline.rules.archive.score import Record, score_found
from finishline.rules.benchmarks.quality import Direction
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.steps import NANOGPT, compile_pattern
from finishline.rules.text import count_text

Output = Literal["json", "csv", "table"]
PATTERN_SECONDS = 30.0  # For the logs of one folder.
EXAMPLE = r"--pattern 'step:(?P<step>\d+).*val_loss:(?P<quality>[\d.]+).*train_time:(?P<ms>\d+)ms'"


class Format(NamedTuple):
    """A format for --format: `score` makes the records of paths, and `listing` is their table."""

    score: Callable[[list[Path], str | None, str | None], Iterable[Record]]
    listing: str


FORMATS = {
    "algoperf": Format(lambda paths, *_: score_algoperf(paths), "algoperf"),
    "nanogpt": Format(
        lambda paths, pattern, target: score_nanogpt(paths, pattern, target), "speedruns"
    ),
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


def score_nanogpt(paths: list[Path], pattern: str | None, target: str | None) -> Iterator[Record]:
    """Yield the record of each folder with logs. Raises CliError for a folder without logs."""
    try:
        compiled = NANOGPT if pattern is None else compile_pattern(pattern)
    except LogFormatError as error:
        raise UsageError(f"{error}. Hint: {EXAMPLE}") from error
    asked = None if target is None else _target(target)
    for path in paths:
        archive = open_archive(path)
        folders = nanogpt.find_folders(archive)
        if not folders:
            raise CliError(
                f"No log found at {path}. Expected a folder with logs (*.txt, *.log, *.out, "
                "*.stdout) such as records/track_1_short/2026-07-17_FP8DownProjection/this_pr."
            )
        outside = [folder for folder in folders if folder.track is None]
        if outside and compiled is NANOGPT and asked is None:
            count, value = count_text(len(outside), "folder"), nanogpt.TRACK_1.value
            told = f"{count} outside a track, scored as track 1 (at most {value}): {outside[0].id}"
            hint = "Hint: --target sets another, and records/track_2_medium/... names a track."
            open_console(stderr=True).print(f"{told}. {hint}", soft_wrap=True)
        for folder in folders:
            with _limit(PATTERN_SECONDS if pattern else 0.0, folder.id):
                scored = nanogpt.score_folder(folder, archive, pattern=compiled, target=asked)
            yield scored.record


def _target(text: str) -> nanogpt.Target:
    """Read a target such as `3.28` (at most), `<=3.28` or `>=94`."""
    direction: Direction = "higher" if text.startswith(">=") else "lower"
    try:
        value = float(text.removeprefix(">=").removeprefix("<="))
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return nanogpt.Target(value, direction)
    expected = "a number such as 3.28 (at most), or '>=94' (at least)"
    raise UsageError(f"--target {text!r}: expected {expected}.")


@contextmanager
def _limit(seconds: float, name: str) -> Iterator[None]:
    """Stop an endless pattern. 0 switches the limit off."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise CliError(
            f"The pattern took more than {seconds:g} s for the logs of {name}. Hint: write it "
            r"without nested repetition, for example \d+ and not (\d+)+."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

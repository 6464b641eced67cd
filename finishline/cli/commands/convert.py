"""`finishline convert`: run logs from the files of other programs."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import UsageError
from finishline.cli.options import BenchmarksDir, shows
from finishline.cli.processes import require_seeds
from finishline.cli.screen import Screen
from finishline.log.folder import next_log
from finishline.rules.errors import RuleError
from finishline.rules.logs.source import (
    Reading,
    convert_rows,
    read_csv,
    read_moment,
    read_trainer_state,
)
from finishline.rules.logs.source_tfevents import read_tfevents
from finishline.rules.submissions.claim import MAX_SEED
from finishline.rules.text import count_text

Format = Literal["tfevents", "trainer_state", "csv"]


@shows
def convert(
    screen: Screen,
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILE...", help="The files to read, one a run, or a folder of event files."
        ),
    ],
    format_: Annotated[Format, Option("--from", help="Kind of the files.")],
    benchmark: Annotated[str, Option(help="Id of a benchmark, or its TOML file.")],
    out: Annotated[Path, Option(help="Folder to write the next run_N.log to.")],
    quality: Annotated[str | None, Option(help="Tag, field or column of the quality.")] = None,
    scale: Annotated[float, Option(help="Factor to the benchmark's unit: 100 for percent.")] = 1.0,
    time: Annotated[
        str | None, Option(metavar="COLUMN", help="Column or field of the times.")
    ] = None,
    time_scale: Annotated[
        float | None, Option(help="Factor of the times to seconds: 0.001 for ms.")
    ] = None,
    epoch: Annotated[
        str | None, Option(metavar="COLUMN", help="Column, field or tag of the epoch.")
    ] = None,
    step: Annotated[
        str | None, Option(metavar="COLUMN", help="Column or field to count steps by.")
    ] = None,
    first_epoch: Annotated[
        int | None,
        Option(
            min=0,
            max=1_000_000,
            help="Number for the file's first epoch: 1 where it counts from 0.",
        ),
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, max=MAX_SEED, help="Seed of the first file's run.")
    ] = None,
    start: Annotated[
        str | None, Option(metavar="TIME", help="Start of the clock: seconds or an ISO date.")
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Make run logs from TensorBoard's events, a Trainer's state or CSV tables.

    It lists the parts of the clock that a file lacks, and never guesses them.
    """
    _, definition = find_benchmark(benchmark, benchmarks_dir)
    start_seconds = None if start is None else read_moment(start)
    if start is not None and start_seconds is None:
        raise UsageError(
            f"--start {start}: expected seconds or a date such as 2026-11-24T12:00:00+00:00."
        )
    for option, factor in (("--scale", scale), ("--time-scale", time_scale)):
        if factor is not None and not (isfinite(factor) and factor > 0):
            raise UsageError(f"{option} {factor:g}: expected a number above 0, such as 100.")
    reading = Reading(
        quality=quality,
        time=time,
        epoch=epoch,
        step=step,
        scale=scale,
        time_scale=time_scale,
        first_epoch=first_epoch,
        seed=seed,
        start_seconds=start_seconds,
    )
    documents, lines = [], []
    unknown: dict[str, str] = {}
    runs = _runs(files, format_)
    require_seeds(seed, len(runs), most=MAX_SEED)
    logs = []
    for number, run in enumerate(runs):
        of_run = replace(reading, seed=None if seed is None else seed + number)
        if format_ == "tfevents":
            source = read_tfevents(run)
        else:
            read = read_csv if format_ == "csv" else read_trainer_state
            source = read(run[0].read_bytes(), file=run[0].name)
        logs.append(convert_rows(source, definition, of_run))
    for log in logs:
        with next_log(out) as file:
            file.write(log.text)
        document = {name: value for name, value in asdict(log).items() if name != "text"}
        documents.append({"log": file.name} | document)
        count = count_text(log.evaluations, "evaluation")
        lines.append(f"Wrote {file.name}: {count} of {log.quality}, epochs by {log.epochs_from}.")
        unknown |= {part: f"unknown: {part}{REMEDIES[part]}" for part in log.unknown}
    answer = documents[0] if len(documents) == 1 else {"logs": documents}
    screen.answer(answer, [*lines, *unknown.values()])


REMEDIES = {
    "run_start": "; give the start of the clock with --start TIME",
    "run_stop": "; the time will count to the evaluation that reached the target",
    "seed": "; give it with --seed N",
    "first_epoch": "; the file counts from 0: give --first-epoch 1 if its epoch 0 was trained, "
    "--first-epoch 0 if it is before the training",
}


def _runs(paths: Sequence[Path], format_: Format) -> list[list[Path]]:
    """Group the files of each run, as TensorBoard does: event files in one folder are one run."""
    if format_ != "tfevents":
        return [[path] for path in paths]
    files = []
    for path in paths:
        found = sorted(path.glob("*tfevents*")) if path.is_dir() else [path]
        if not found:
            message, expected = "no event file in the folder", "*tfevents*"
            raise RuleError(message, file=str(path), expected=expected)
        files += found
    folders = dict.fromkeys(file.parent for file in files)
    return [[file for file in files if file.parent == folder] for folder in folders]

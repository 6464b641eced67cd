"""`finishline convert`: a run log from what other tools wrote."""

from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.cli.options import BenchmarksDir, Json
from finishline.cli.screen import open_screen
from finishline.log.folder import next_log
from finishline.rules.errors import RuleError
from finishline.rules.logs.source import SourceRow, convert_rows, read_moment
from finishline.rules.logs.source_csv import read_csv
from finishline.rules.logs.source_tfevents import read_tfevents
from finishline.rules.logs.source_trainer_state import read_trainer_state
from finishline.rules.submissions.claim import MAX_SEED
from finishline.rules.text import count_text


class Format(StrEnum):
    """Files that can be converted."""

    tfevents = "tfevents"
    trainer_state = "trainer_state"
    csv = "csv"


def convert(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    format_: Annotated[Format, typer.Option("--from", help="What the file is.")],
    benchmark: Annotated[
        str, typer.Option("--benchmark", help="Id of a benchmark, or its TOML file.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to write the next run_N.log to.")],
    quality: Annotated[
        str | None,
        typer.Option("--quality", help="Tag, field or column of the quality."),
    ] = None,
    scale: Annotated[
        float, typer.Option("--scale", help="Factor to the benchmark's unit: 100 for percent.")
    ] = 1.0,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="Column or field of the times, in seconds."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of the run.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="Start of the clock: seconds or an ISO date."),
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
    as_json: Json = False,
) -> int:
    """Make a run log from TensorBoard's events, a Trainer's state or a CSV table.

    Parts of the clock that the file does not tell are named, never guessed.
    """
    _, definition = find_benchmark(benchmark, benchmarks_dir)
    start_seconds = None if start is None else read_moment(start)
    if start is not None and start_seconds is None:
        raise CliError(
            f"--start {start}: expected seconds or a date such as 2026-11-24T12:00:00+00:00.",
            exit_code=ExitCode.USAGE,
        )
    if not (isfinite(scale) and scale > 0):
        raise CliError(
            f"--scale {scale:g}: expected a number above 0, such as 100.", exit_code=ExitCode.USAGE
        )
    try:
        converted = convert_rows(
            _read(source, format_, time),
            file=source.name,
            benchmark=definition,
            quality=quality,
            scale=scale,
            seed=seed,
            start_seconds=start_seconds,
        )
        with next_log(out) as file:
            file.write(converted.text)
    except RuleError as error:
        if error.code == "time_unknown":
            raise CliError(f"{error}.", exit_code=ExitCode.REFUSED) from error
        raise refusal(error) from error
    except OSError as error:
        raise CliError(
            f"Cannot use {error.filename} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error
    document = {
        "log": file.name,
        "evaluations": converted.evaluations,
        "quality": converted.quality,
        "epochs_from": converted.epochs_from,
        "unknown": list(converted.unknown),
    }
    count = count_text(converted.evaluations, "evaluation")
    told = f"Wrote {file.name}: {count} of {converted.quality}, epochs by {converted.epochs_from}."
    unknown = [f"unknown: {part}{REMEDIES.get(part, '')}" for part in converted.unknown]
    open_screen(as_json=as_json).answer(document, [told, *unknown])
    return int(ExitCode.OK)


REMEDIES = {
    "run_start": "; give the start of the clock with --start TIME",
    "run_stop": "; the time will count to the evaluation that reached the target",
    "seed": "; give it with --seed N",
}


def _read(source: Path, format_: Format, time: str | None) -> list[SourceRow]:
    """The rows of the file. Raises LogFormatError or OSError."""
    if format_ is Format.tfevents:
        with source.open("rb") as opened:
            return read_tfevents(opened, file=source.name)
    if format_ is Format.csv:
        return read_csv(source.read_bytes(), file=source.name, time=time)
    return read_trainer_state(source.read_bytes(), file=source.name, time=time)

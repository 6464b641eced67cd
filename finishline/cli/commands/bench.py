"""`finishline bench`: measure a reference, or any model, on this machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.benching import (
    BenchOptions,
    ModelOptions,
    bench_table,
    model_lines,
    model_table,
    results_csv,
    run_bench,
)
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import BenchmarksDir, Json
from finishline.cli.screen import open_screen
from finishline.cli.training import require_training_packages

Model = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="torchvision:NAME, hf:roberta or FILE.py:FUNCTION."),
]
Seconds = Annotated[
    float, typer.Option(min=0.1, max=600.0, help="Seconds to measure training, then inference.")
]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Processor threads to use.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for several."),
]
Out = Annotated[Path | None, typer.Option(help="Also write the result to this file (JSON).")]
Csv = Annotated[
    Path | None, typer.Option("--csv", help="Also write a model's results to this file (CSV).")
]


def bench(
    benchmark: Annotated[
        str | None, typer.Argument(help="A benchmark's id, or the path of its file.")
    ] = None,
    model: Model = None,
    precision: Annotated[
        str | None, typer.Option(help="Of a model: fp32 (default), tf32, bf16, fp16 or fp8.")
    ] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Of a model, such as 1,8 (default).")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="Of a model: inference,training (default) or one of them.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Tokens of a sample of hf:roberta (default: 128).")
    ] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(help="Price of this machine, for a model's samples per dollar.")
    ] = None,
    seconds: Seconds = 5.0,
    device: Device = None,
    threads: Threads = 1,
    settings: Settings = None,
    out: Out = None,
    csv: Csv = None,
    benchmarks_dir: BenchmarksDir = None,
    as_json: Json = False,
) -> int:
    """Measure training and inference on made-up data, and the roofs of this machine.

    With --model any model is measured, with random weights; nothing is downloaded.
    """
    given = {
        "--precision": precision,
        "--batch-sizes": batch_sizes,
        "--phase": phase,
        "--tokens": tokens,
        "--usd-per-hour": usd_per_hour,
    }
    chosen = {name: str(value) for name, value in given.items() if value is not None}
    options: BenchOptions | ModelOptions
    if (benchmark is None) == (model is None):
        raise _usage("Name either a benchmark or a model: bench BENCHMARK, or bench --model SPEC.")
    if model is None:
        if chosen or csv is not None:
            raise _usage(f"{', '.join([*chosen] or ['--csv'])} goes with --model alone.")
        require_training_packages("bench")
        file, _ = find_benchmark(str(benchmark), benchmarks_dir)
        options = BenchOptions(file, settings or [], device, threads, seconds)
    else:
        if settings:
            raise _usage("--set goes with a benchmark alone; a model has no hyperparameters.")
        require_training_packages("bench")
        chosen |= {"--seconds": str(seconds), "--threads": str(threads)}
        chosen |= {} if device is None else {"--device": device}
        options = ModelOptions(model, [f"{name}={value}" for name, value in chosen.items()])
    for path in (out, csv):
        if path is not None:
            require_file(path)
    screen = open_screen(as_json=as_json)
    result = run_bench(options, told=lambda doing: screen.say(f"{doing} ..."))
    if out is not None:
        write_file(out, json.dumps(result, indent=2) + "\n")
    if csv is not None:
        write_file(csv, results_csv(result))
    if model is None:
        screen.answer(result, [bench_table(result)])
    else:
        screen.answer(result, [model_table(result), *model_lines(result)])
    return int(ExitCode.OK)


def _usage(message: str) -> CliError:
    return CliError(message, exit_code=ExitCode.USAGE)


def require_file(path: Path) -> None:
    """Raise CliError, before anything is measured, where a file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
    except OSError as error:
        raise _unwritable(path, error) from error


def write_file(path: Path, text: str) -> None:
    """Write a result. Raises CliError where it cannot be written."""
    try:
        path.write_text(text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> CliError:
    return CliError(
        f"Cannot write {path} ({error.strerror}); choose another file.",
        exit_code=ExitCode.REFUSED,
    )

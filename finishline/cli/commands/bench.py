"""`finishline bench`: what this machine does with a benchmark's reference, in a minute."""

import json
from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.bench_table import bench_table
from finishline.cli.benching import BenchOptions, run_bench
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_BENCHMARKS, BenchmarksDir, Json
from finishline.cli.screen import open_screen
from finishline.cli.training import find_benchmark, require_training_packages

Seconds = Annotated[
    float, typer.Option(min=0.1, max=600.0, help="Seconds of training, and of inference.")
]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Processor threads to use.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for several."),
]
Out = Annotated[Path | None, typer.Option(help="Write the result there as JSON too.")]


def bench(
    benchmark: Annotated[str, typer.Argument(help="A benchmark's id, or the path of its file.")],
    seconds: Seconds = 5.0,
    device: Device = None,
    threads: Threads = 1,
    settings: Settings = None,
    out: Out = None,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
    as_json: Json = False,
) -> int:
    """Measure training and inference on made-up data, and what this machine could do at best."""
    require_training_packages()
    file, _ = find_benchmark(benchmark, benchmarks_dir)
    options = BenchOptions(
        benchmark_file=file,
        settings=settings or [],
        device=device,
        threads=threads,
        seconds=seconds,
    )
    screen = open_screen(as_json=as_json)
    result = run_bench(options, told=lambda doing: screen.say(f"{doing} ..."))
    if out is not None:
        write_result(out, result)
    screen.answer(result, [bench_table(result)])
    return int(ExitCode.OK)


def write_result(out: Path, result: dict[str, object]) -> None:
    """The result as a file. Raises CliError where it cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise CliError(
            f"Cannot write {out} ({error.strerror}); choose another file.",
            exit_code=ExitCode.REFUSED,
        ) from error

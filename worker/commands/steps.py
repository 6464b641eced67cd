"""`finishline bench scale` and `profile`: training steps in several processes, and their parts."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import BenchmarksDir, Data, shows
from finishline.cli.processes import python_module, require_training_packages
from finishline.cli.screen import Screen
from finishline.cli.tables import ABSENT, FittingTable, make_table
from finishline.rules.submissions.claim import check_precision, check_settings
from worker.commands.measuring import run_measurement

Name = Annotated[str, typer.Argument(help="A benchmark's id, or the path of its file.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
]
Steps = Annotated[int, typer.Option("--steps", min=1, max=1000, help="Training steps to time.")]


@shows
def scale(
    screen: Screen,
    benchmark: Name,
    processes: Annotated[
        str, typer.Option("--processes", help="Numbers of processes, as 1,2,4.")
    ] = "1,2",
    strong: Annotated[
        bool, typer.Option("--strong", help="One batch, shared by all processes.")
    ] = False,
    weak: Annotated[bool, typer.Option("--weak", help="One batch for each process.")] = False,
    steps: Steps = 20,
    device: Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time a reference's training steps in several processes, and their all-reduce."""
    require_training_packages("bench scale")
    counts = _read_processes(processes)
    if strong == weak:
        raise UsageError("Choose one of --strong and --weak.")
    file, definition = find_benchmark(benchmark, benchmarks_dir)
    check_precision(definition, None)
    check_settings(definition, definition.divisions[0], {})
    options = ["--processes", *map(str, counts), "--steps", str(steps), "--data", str(data)]
    options += ["--strong"] if strong else []
    result = _measure("worker.scaling", file, options, device, screen)
    screen.answer(result, [_points_table(result)])


def _measure(
    module: str, file: Path, options: list[str], device: str | None, screen: Screen
) -> dict[str, Any]:
    options += [] if device is None else ["--device", device]
    command = python_module(module, str(file), *options)
    return run_measurement(command, told=lambda doing: screen.say(f"{doing} ..."))


def _read_processes(text: str) -> list[int]:
    """Numbers of processes in the order given. Raises CliError beyond this machine's processors."""
    most = max(2, os.cpu_count() or 1)
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:9]) <= most for part in parts):
        raise UsageError(
            f"--processes is {text!r}; expected whole numbers from 1 to {most}, the processors "
            "here, with commas between them."
        )
    return list(dict.fromkeys(int(part) for part in parts))


def _points_table(result: dict[str, Any]) -> FittingTable:
    names = ("step_seconds", "samples_per_second", "speedup", "efficiency",
             "communication_share", "predicted_step_seconds")  # fmt: skip
    table = make_table("processes", "batch", *(name.replace("_", " ") for name in names))
    for point in result["points"]:
        figures = [ABSENT if point[name] is None else f"{point[name]:.4g}" for name in names]
        table.add_row(str(point["processes"]), str(point["batch_size"]), *figures)
    return table


@shows
def profile(
    screen: Screen,
    benchmark: Name,
    out: Annotated[Path, typer.Option("--out", help="Folder for trace.json.")],
    steps: Steps = 20,
    device: Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time the parts of a reference's training step, and trace some steps."""
    require_training_packages("bench profile")
    file, definition = find_benchmark(benchmark, benchmarks_dir)
    check_precision(definition, None)
    check_settings(definition, definition.divisions[0], {})
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "trace.json").write_text("")
    except OSError as error:
        raise CliError(
            f"Cannot write in {out} ({error.strerror}); choose another folder."
        ) from error
    options = ["--steps", str(steps), "--out", str(out), "--data", str(data)]
    result = _measure("worker.profiling", file, options, device, screen)
    screen.answer(result, [_parts_table(result), f"Wrote {out / 'trace.json'}."])


def _parts_table(result: dict[str, Any]) -> FittingTable:
    table = make_table("part", "milliseconds", right=("milliseconds",))
    for part, seconds in result["parts_seconds"].items():
        table.add_row(part, ABSENT if seconds is None else f"{1000 * seconds:.4g}")
    table.add_row("step", f"{1000 * result['step_seconds']:.4g}")
    table.add_row("bottleneck", str(result["bottleneck"]))
    return table

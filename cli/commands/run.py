"""`finishline run`: train the reference on this machine and write a submission."""

import time
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import CliError, ExitCode
from cli.options import DEFAULT_BENCHMARKS, BenchmarksDir, Json
from cli.replay import ReplayProgress
from cli.replay_screen import show_all
from cli.screen import Screen, open_screen
from cli.submission_files import CLAIM_NAME, find_submission_files
from cli.training import (
    Training,
    find_benchmark,
    read_settings,
    require_trainable,
    require_training_packages,
    target_of,
    train_reference,
)


def run(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark, or its TOML file.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to (default: runs/<time>).")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, max=100, help="Trainings (default: as the rules ask)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for more."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the first run.")
    ] = None,
    division: Annotated[str | None, typer.Option("--division", help="closed or open.")] = None,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
    as_json: Json = False,
) -> int:
    """Train a benchmark's reference model here and write the submission it makes."""
    require_training_packages()
    chosen = read_settings(settings or [])
    if out is not None and (out / CLAIM_NAME).exists():
        raise CliError(
            f"{out} holds a submission already; choose another folder, or take that away.",
            exit_code=ExitCode.USAGE,
        )
    file, definition = find_benchmark(benchmark, benchmarks_dir)
    require_trainable(definition, chosen, division=division)
    training = Training(
        benchmark_file=file,
        out=out or Path("runs") / f"{definition.benchmark_id}-{time.strftime('%Y%m%d-%H%M%S')}",
        runs=runs or definition.runs.count,
        settings=settings or [],
        seed=seed,
        division=division,
    )
    screen = open_screen(as_json=as_json)
    progress = train_shown(training, ReplayProgress(target=target_of(definition)), screen)
    document = {
        "submission": str(training.out / CLAIM_NAME),
        "logs": [str(path) for path in find_submission_files(training.out).logs.values()],
        "runs": [{"index": r.index, "status": r.status} for r in progress.runs.values()],
    }
    screen.answer(document, [f"Wrote {training.out}. Next: finishline check {training.out}"])
    return int(ExitCode.OK)


def train_shown(training: Training, progress: ReplayProgress, screen: Screen) -> ReplayProgress:
    """Train and show it; `progress` as it is at the end. Raises CliError."""
    try:
        training.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"Cannot write in {training.out} ({error.strerror}); choose another folder.",
            exit_code=ExitCode.REFUSED,
        ) from error
    progress.runs_planned = training.runs
    show_all(screen, progress, train_reference(training))
    return progress

"""`finishline run`: train the reference, or a program of your own."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from finishline.cli.client import ServerClient
from finishline.cli.commands.check import remark_lines
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, BenchmarksDir, Data, Json, Token
from finishline.cli.own_training import OwnTraining, keep_ticket, run_command, seeds_from
from finishline.cli.replay_screen import ReplayProgress, show_all
from finishline.cli.screen import Screen, open_screen
from finishline.cli.submission_tables import CLAIM_NAME, find_submission_files
from finishline.cli.training import (
    Training,
    name_of_class,
    open_ticket,
    read_settings,
    require_device,
    require_trainable,
    require_training_packages,
    system_here,
    target_of,
    train_reference,
    write_ticket,
)
from finishline.client.files import problems_of
from finishline.definitions import folders_of
from finishline.log.folder import logs_in
from finishline.log.recorder import DIVISION_VARIABLE
from finishline.profiles import chosen_server
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs import parse_run_log
from finishline.rules.scoring.utilisation import find_shared
from finishline.rules.submissions.claim import MAX_SEED

CLOSED_TICKET = (
    "The ticket is of the closed division, where you train as the reference does. "
    "For a network, optimiser or schedule of your own: --division open."
)


def run(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark, or its TOML file.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="A program of your own to run for each seed (default: the reference).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to (default: runs/<time>).")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, max=100, help="Trainings (default: the benchmark's number)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for more."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of the first run."),
    ] = None,
    division: Annotated[str | None, typer.Option("--division", help="closed or open.")] = None,
    ticket: Annotated[
        Path | None,
        typer.Option("--ticket", help="Train the seeds and settings of this ticket, offline."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="fp32, tf32, bf16 or fp16; the submission states it."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", envvar="FINISHLINE_DEVICE", help="cpu, cuda or cuda:NUMBER."),
    ] = None,
    data: Data = Path("var/data"),
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="FINISHLINE_URL", help="Server to get a ticket from."),
    ] = None,
    token: Token = None,
    benchmarks_dir: BenchmarksDir = None,
    as_json: Json = False,
) -> int:
    """Train a benchmark's reference model, or a program of your own, and write a submission.

    The program gets FINISHLINE_SEED, FINISHLINE_RUN, FINISHLINE_TICKET, FINISHLINE_BENCHMARK and
    FINISHLINE_OUT, and writes a log there, for one by finishline.log.
    """
    if not command:
        require_training_packages("run")
    chosen = read_settings(settings or [])
    if out is not None and (out / CLAIM_NAME).exists():
        raise CliError(
            f"{out} already has a submission. Choose another folder, or remove it.",
            exit_code=ExitCode.USAGE,
        )
    file, definition = find_benchmark(benchmark, benchmarks_dir)
    if not command:
        require_trainable(definition, chosen, division=division, precision=precision)
        require_device(device)
    elif precision is not None:
        raise CliError(
            "--precision is of the reference. State that of a program in its submission.json.",
            exit_code=ExitCode.USAGE,
        )
    if ticket is not None and (runs, settings, seed, division) != (None, None, None, None):
        raise CliError(
            "--ticket sets runs, seeds, settings and division. Remove those options.",
            exit_code=ExitCode.USAGE,
        )
    training = Training(
        benchmark_file=file,
        out=out or Path("runs") / f"{definition.benchmark_id}-{time.strftime('%Y%m%d-%H%M%S')}",
        runs=runs or definition.runs.count,
        settings=settings or [],
        seed=seed,
        division=division,
        device=device,
        data=data,
        precision=precision,
    )
    screen = open_screen(as_json=as_json)
    if ticket is not None:
        training = replace(training, ticket=ticket, runs=len(open_ticket(ticket).seeds))
    elif seed is None and (url is not None or token is not None):
        training = _with_ticket(training, definition.benchmark_id, chosen, url, token, screen)
        is_guess = command and division is None and "open" in definition.divisions[1:]
        if is_guess and training.ticket is not None:
            screen.say(CLOSED_TICKET)
    if command:
        return _run_own(training, definition, command, chosen, benchmarks_dir, screen)
    progress = train_shown(training, ReplayProgress(target=target_of(definition)), screen)
    screen.say(*_shared_lines(training, definition))
    document = {
        "submission": str(training.out / CLAIM_NAME),
        "logs": [str(path) for path in find_submission_files(training.out).logs.values()],
        "runs": [{"index": r.index, "status": r.status} for r in progress.runs.values()],
    }
    screen.answer(document, [f"Wrote {training.out}. Next: finishline check {training.out}"])
    return int(ExitCode.OK)


def _run_own(
    training: Training,
    benchmark: Benchmark,
    command: list[str],
    settings: dict[str, float],
    benchmarks_dir: Path | None,
    screen: Screen,
) -> int:
    """Run a program of the user's for each seed; the exit code."""
    ticket = None
    if training.ticket is not None:
        ticket = open_ticket(training.ticket)
        keep_ticket(training.ticket, training.out)
    surroundings = {"FINISHLINE_DATA_DIR": str(training.data.resolve())}
    if ticket is not None or training.division is not None:
        surroundings[DIVISION_VARIABLE] = ticket.division if ticket else str(training.division)
    if training.device is not None:
        surroundings["FINISHLINE_DEVICE"] = training.device
    if benchmarks_dir is not None or training.benchmark_file.parent not in folders_of(None):
        surroundings["FINISHLINE_BENCHMARKS_DIR"] = str(training.benchmark_file.parent.resolve())
    own = OwnTraining(
        command=command,
        benchmark=benchmark,
        out=training.out,
        seeds=ticket.seeds if ticket is not None else seeds_from(training.seed, training.runs),
        division=ticket.division if ticket else training.division or benchmark.divisions[0],
        settings=ticket.settings if ticket is not None else settings,
        ticket=ticket,
        surroundings=surroundings,
    )
    runs = [
        {"index": run, "seed": own.seeds[run]} for run in run_command(own, as_json=screen.as_json)
    ]
    document = {
        "submission": str(own.out / CLAIM_NAME),
        "logs": [str(path) for path in logs_in(own.out)],
        "runs": runs,
    }
    screen.answer(document, [f"Wrote {own.out}. Next: finishline check {own.out}"])
    return int(ExitCode.OK)


def _shared_lines(training: Training, benchmark: Benchmark) -> list[Text]:
    """Return a warning for each run that had less than nine tenths of its processor."""
    logs = find_submission_files(training.out).logs
    runs = [
        parse_run_log(path.read_bytes(), name=name, benchmark=benchmark)
        for name, path in logs.items()
    ]
    return remark_lines(problems_of(find_shared(runs)))


def _with_ticket(
    training: Training,
    benchmark_id: str,
    settings: dict[str, float],
    url: str | None,
    token: str | None,
    screen: Screen,
) -> Training:
    """Return the training with the server's name of this machine's class, and with a ticket.

    Without an answer it goes on with seeds of its own, and says so.
    """
    try:
        system = system_here(training.device)
        with ServerClient(url or DEFAULT_URL, token) as server:
            training = replace(training, hardware_class=name_of_class(server, system))
            if chosen_server(server.url, token).token is None:
                return training
            wanted = {
                "benchmark": benchmark_id,
                "division": training.division,
                "settings": settings,
                "hardware_class": training.hardware_class,
                "runs": training.runs,
            }
            got = server.post("/tickets", wanted)
    except CliError as error:
        screen.say(f"No ticket, so the runs choose their own seeds: {error.message}")
        return training
    file = training.out / "ticket.json"
    write_ticket(file, got)
    return replace(training, ticket=file, runs=len(got["seeds"]), settings=[], division=None)


def train_shown(training: Training, progress: ReplayProgress, screen: Screen) -> ReplayProgress:
    """Train and show it; `progress` as it is at the end. Raises CliError."""
    progress.runs_planned = training.runs
    show_all(screen, progress, train_reference(training))
    return progress

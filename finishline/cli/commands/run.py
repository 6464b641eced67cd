"""`finishline run`: train the reference, or a program of your own."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from rich.text import Text

from finishline.cli.client import ServerClient, segment
from finishline.cli.commands.check import remark_lines
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, BenchmarksDir, Data, Json, Token
from finishline.cli.own_training import OwnTraining, require_seeds, run_command, seeds_from
from finishline.cli.replay_screen import ReplayProgress, show_all
from finishline.cli.screen import Screen, open_screen
from finishline.cli.submission_tables import CLAIM_NAME, find_submission_files
from finishline.cli.training import (
    Training,
    name_of_class,
    read_settings,
    require_device,
    require_trainable,
    require_training_packages,
    system_here,
    target_of,
    train_reference,
)
from finishline.client.files import problems_of
from finishline.definitions import folders_of
from finishline.log.folder import logs_in
from finishline.log.recorder import DIVISION_VARIABLE
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs import parse_run_log
from finishline.rules.submissions.claim import MAX_SEED, MAX_TRAINED_SEED
from finishline.rules.verification.utilisation import find_shared


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
        typer.Option(
            "--url",
            envvar="FINISHLINE_URL",
            help="Server that names this hardware class and knows the benchmark's phase.",
        ),
    ] = None,
    token: Token = None,
    benchmarks_dir: BenchmarksDir = None,
    as_json: Json = False,
) -> int:
    """Train a benchmark's reference model, or a program of your own, and write a submission.

    The program gets FINISHLINE_SEED, FINISHLINE_RUN, FINISHLINE_BENCHMARK and FINISHLINE_OUT, and
    writes a log there, for one by finishline.log.
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
    count = runs or definition.runs.count
    require_seeds(seed, count, most=MAX_SEED if command else MAX_TRAINED_SEED)
    if not command:
        require_trainable(definition, chosen, division=division, precision=precision)
        require_device(device)
    elif precision is not None:
        raise CliError(
            "--precision is of the reference. State that of a program in its submission.json.",
            exit_code=ExitCode.USAGE,
        )
    training = Training(
        benchmark_file=file,
        out=out or Path("runs") / f"{definition.benchmark_id}-{time.strftime('%Y%m%d-%H%M%S')}",
        runs=count,
        settings=settings or [],
        seed=seed,
        division=division,
        device=device,
        data=data,
        precision=precision,
    )
    screen = open_screen(as_json=as_json)
    is_known = url is not None or token is not None
    notice = None
    if is_known:
        notice = _phase_notice(url or DEFAULT_URL, token, definition.benchmark_id)
    if notice is not None and not as_json:  # Its stderr has one document, of an error.
        typer.echo(notice, err=True)
    if command:
        return _run_own(
            training, definition, command, chosen, benchmarks_dir, screen, notice=notice
        )
    if is_known:
        with ServerClient(url or DEFAULT_URL, token) as server:
            name = name_of_class(server, system_here(device))
        training = replace(training, hardware_class=name)
    progress = train_shown(training, ReplayProgress(target=target_of(definition)), screen)
    screen.say(*_shared_lines(training, definition))
    document = {
        "submission": str(training.out / CLAIM_NAME),
        "logs": [str(path) for path in find_submission_files(training.out).logs.values()],
        "runs": [{"index": r.index, "status": r.status} for r in progress.runs.values()],
        "notice": notice,
    }
    screen.answer(document, [f"Wrote {training.out}. Next: finishline check {training.out}"])
    return int(ExitCode.OK)


def _phase_notice(url: str, token: str | None, benchmark_id: str) -> str | None:
    """Whether a server takes no submissions now, or does not answer, as a sentence."""
    try:
        with ServerClient(url, token, timeout=httpx2.Timeout(5.0)) as server:
            phases = server.get(f"/benchmarks/{segment(benchmark_id)}").get("phases") or {}
    except CliError as error:
        return f"The phase of {benchmark_id} is not known: {error.message}"
    if phases.get("takes_submissions", True):
        return None
    told = f"{benchmark_id} takes no submissions at {url} now. {phases.get('sentence', '')}"
    return f"warning: {told}".strip()


def _run_own(
    training: Training,
    benchmark: Benchmark,
    command: list[str],
    settings: dict[str, float],
    benchmarks_dir: Path | None,
    screen: Screen,
    *,
    notice: str | None,
) -> int:
    """Run a program of the user's for each seed; the exit code."""
    surroundings = {"FINISHLINE_DATA_DIR": str(training.data.resolve())}
    if training.division is not None:
        surroundings[DIVISION_VARIABLE] = training.division
    if training.device is not None:
        surroundings["FINISHLINE_DEVICE"] = training.device
    if benchmarks_dir is not None or training.benchmark_file.parent not in folders_of(None):
        surroundings["FINISHLINE_BENCHMARKS_DIR"] = str(training.benchmark_file.parent.resolve())
    own = OwnTraining(
        command=command,
        benchmark=benchmark,
        out=training.out,
        seeds=seeds_from(training.seed, training.runs),
        division=training.division or benchmark.divisions[0],
        settings=settings,
        surroundings=surroundings,
    )
    runs = [
        {"index": run, "seed": own.seeds[run]} for run in run_command(own, as_json=screen.as_json)
    ]
    document = {
        "submission": str(own.out / CLAIM_NAME),
        "logs": [str(path) for path in logs_in(own.out)],
        "runs": runs,
        "notice": notice,
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


def train_shown(training: Training, progress: ReplayProgress, screen: Screen) -> ReplayProgress:
    """Train and show it; `progress` as it is at the end. Raises CliError."""
    progress.runs_planned = training.runs
    show_all(screen, progress, train_reference(training))
    return progress

"""`finishline run`: train the reference, or your program."""

import os
import secrets
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from finishline.cli.client import ServerClient, connect
from finishline.cli.commands.check import remark_lines
from finishline.cli.commands.code import Nonce, Plain, run_code, tell_phase
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.options import ROOT, BenchmarksDir, Data, shows
from finishline.cli.processes import (
    Training,
    read_settings,
    require_device,
    require_seeds,
    require_training_packages,
    train_reference,
)
from finishline.cli.screen import Screen
from finishline.cli.watching import ReplayProgress, replay_screen
from finishline.client.errors import FinishlineError, problems_of
from finishline.client.files import CLAIM_NAME, content_of, find_submission_files, is_code
from finishline.definitions import folders_of
from finishline.devices import choose_device, local_system
from finishline.log.folder import UNSTATED, Submission, logs_in, renew_submission
from finishline.log.recorder import DIVISION_VARIABLE
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs import parse_run_log
from finishline.rules.submissions.claim import (
    MAX_SEED,
    MAX_TRAINED_SEED,
    check_precision,
    check_settings,
)
from finishline.rules.submissions.claim_checks import find_shared
from finishline.rules.trainings.manifest import FILE

STDERR = 2  # The file descriptor.
SEED_LIMIT = 2**31
SYSTEM_FIELDS = ("accelerator", "accelerator_count", "processor", "processor_count")


@shows
def run(
    screen: Screen,
    name: Annotated[
        str,
        Argument(metavar="PATH|BENCHMARK", help="Folder of code, or id or TOML of a benchmark."),
    ],
    command: Annotated[
        list[str] | None,
        Argument(
            metavar="COMMAND",
            help="Your program, run for each seed (default: the reference).",
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="Folder to write to (default: runs/<time>).")] = None,
    runs: Annotated[
        int | None, Option(min=1, max=100, help="Trainings (default: the benchmark's number).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A hyperparameter. Repeat it for more."),
    ] = None,
    seed: Annotated[int | None, Option(min=0, max=MAX_SEED, help="Seed of the first run.")] = None,
    division: Annotated[str | None, Option(help="closed or open.")] = None,
    precision: Annotated[
        str | None, Option(help="fp32, tf32, bf16 or fp16. The submission states it.")
    ] = None,
    device: Annotated[
        str | None, Option(envvar="FINISHLINE_DEVICE", help="cpu, cuda or cuda:NUMBER.")
    ] = None,
    data: Data = Path("var/data"),
    nonce: Nonce = None,
    plain: Plain = False,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Train code in a sandbox, a benchmark's reference, or your program.

    A PATH with a training.toml is code, trained as a worker trains it. The reference and a program
    write a submission.

    The program gets FINISHLINE_SEED, FINISHLINE_RUN, FINISHLINE_BENCHMARK and FINISHLINE_OUT, and
    writes a log there, for example by finishline.log.
    """
    if is_code(Path(name)):
        others = {"--out": out, "--set": settings, "--division": division, "COMMAND": command,
                  "--precision": precision, "--device": device}  # fmt: skip
        if given := [flag for flag, value in others.items() if value]:
            raise UsageError(
                f"{', '.join(given)}: expected for a benchmark, and {name} is a folder with code. "
                "Hint: in another folder the name is the benchmark's."
            )
        return run_code(
            screen,
            Path(name),
            runs=runs or 3,
            seed=seed,
            nonce=nonce,
            plain=plain,
            data=data,
            benchmarks_dir=benchmarks_dir,
        )
    if nonce is not None or plain:
        raise UsageError(f"--nonce, --plain: expected for code; {name} has no training.toml.")
    if not command:
        require_training_packages("run")
    chosen = read_settings(settings or [])
    if out is not None and (out / CLAIM_NAME).exists():
        raise UsageError(f"{out} already has a submission. Choose another folder, or remove it.")
    try:
        file, definition = find_benchmark(name, benchmarks_dir)
    except CliError as error:
        if Path(name).is_dir():
            expected = f"code with a {FILE}, as `finishline init` writes it, or a benchmark"
            raise UsageError(f"The folder {name} has no {FILE}; expected {expected}.") from error
        raise
    count = runs or definition.runs.count
    require_seeds(seed, count, most=MAX_SEED if command else MAX_TRAINED_SEED)
    if not command:
        check_precision(definition, precision)
        check_settings(definition, division or definition.divisions[0], chosen)
        require_device(device)
    elif precision is not None:
        raise UsageError(
            "--precision is of the reference. State that of a program in its submission.json."
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
    notice = tell_phase(screen, definition.benchmark_id)
    runs_made: list[dict[str, Any]]
    remarks: list[Text] = []
    if command:
        runs_made = [*_run_own(training, definition, command, chosen, benchmarks_dir, screen)]
        logs = logs_in(training.out)
    else:
        if ROOT.is_server_known:
            with connect() as server:
                class_name = name_of_class(server, local_system(choose_device(device)))
            training = replace(training, hardware_class=class_name)
        progress = train_shown(training, definition, screen)
        runs_made = [{"index": r.index, "status": r.status} for r in progress.runs.values()]
        made = find_submission_files(training.out).logs
        logs = [training.out / each for each in made]
        parsed = [
            parse_run_log(content_of(log), name=name, benchmark=definition)
            for name, log in made.items()
        ]
        remarks = remark_lines(problems_of(find_shared(parsed)))
    document = {
        "submission": str(training.out / CLAIM_NAME),
        "logs": [str(path) for path in logs],
        "runs": runs_made,
        "notice": notice,
    }
    wrote = f"Wrote {training.out}. "
    if count < definition.runs.count:
        wrote += f"A submission to {definition.benchmark_id} has {definition.runs.count} runs."
    else:
        wrote += f"Next: finishline check {training.out}"
    screen.answer(document, [wrote, *remarks])
    return ExitCode.OK


def name_of_class(server: ServerClient, system: Mapping[str, Any]) -> str:
    """Return the server's name of this machine's hardware class, else a name made here."""
    own = str(system["hardware_class"])
    try:
        listed = server.get("/hardware-classes")["hardware_classes"]
    except (FinishlineError, KeyError, TypeError):
        return own
    wanted = [system[name] for name in SYSTEM_FIELDS]
    names = [str(each["name"]) for each in listed if [each.get(n) for n in SYSTEM_FIELDS] == wanted]
    return own if own in names or not names else names[0]


def _run_own(
    training: Training,
    benchmark: Benchmark,
    command: list[str],
    settings: dict[str, float],
    benchmarks_dir: Path | None,
    screen: Screen,
) -> list[dict[str, int]]:
    out = training.out
    environment = os.environ | {
        "FINISHLINE_BENCHMARK": benchmark.benchmark_id,
        "FINISHLINE_OUT": str(out.resolve()),
        "FINISHLINE_DATA_DIR": str(training.data.resolve()),
    }
    if training.division is not None:
        environment[DIVISION_VARIABLE] = training.division
    if training.device is not None:
        environment["FINISHLINE_DEVICE"] = training.device
    if benchmarks_dir is not None or training.benchmark_file.parent not in folders_of(None):
        environment["FINISHLINE_BENCHMARKS_DIR"] = str(training.benchmark_file.parent.resolve())
    first = secrets.randbelow(SEED_LIMIT) if training.seed is None else training.seed
    runs = [{"index": run, "seed": first + run} for run in range(training.runs)]
    out.mkdir(parents=True, exist_ok=True)
    for run, seed in (each.values() for each in runs):
        before = len(logs_in(out))
        environment |= {"FINISHLINE_RUN": str(run), "FINISHLINE_SEED": str(seed)}
        code = _run_once(command, environment, as_json=screen.as_json)
        where = f"Run {run + 1} of {len(runs)} (seed {seed})"
        if code != 0:
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise CliError(
                f"{where} failed: {command[0]} ended with {ended}. Its logs are in {out}."
            )
        if len(logs_in(out)) == before:
            raise CliError(
                f"{where} wrote no log. Log with finishline.log, or write "
                f"run_{run}.log into the folder that FINISHLINE_OUT names."
            )
    if not (out / CLAIM_NAME).is_file():  # The program logged by other means.
        scripts = [Path(word).name for word in command if word.endswith(".py")]
        submission = Submission(
            benchmark=benchmark,
            division=training.division or benchmark.divisions[0],
            hyperparameters=settings,
            model=scripts[0] if scripts else Path(command[0]).name,
            framework=UNSTATED,
        )
        renew_submission(out, submission)
    return runs


def _run_once(command: list[str], environment: Mapping[str, str], *, as_json: bool) -> int:
    """Return the exit code of a program. With `as_json` its output goes to standard error."""
    try:
        child = subprocess.Popen(command, env=environment, stdout=STDERR if as_json else None)
    except OSError as error:
        raise CliError(f"Cannot start {command[0]} ({error.strerror}).") from error
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


def train_shown(training: Training, benchmark: Benchmark, screen: Screen) -> ReplayProgress:
    progress = ReplayProgress(target=benchmark.target)
    with replay_screen(screen, progress) as show:
        for event in train_reference(training):
            show(event)
    return progress

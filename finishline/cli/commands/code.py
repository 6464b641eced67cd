"""Handle a code submission on this machine: `init`, and the code of `check` and `run`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.text import Text
from typer import Argument, Option

from finishline.cli.client import ServerClient, connect, segment
from finishline.cli.errors import CliError, ExitCode, UsageError, cli_error, require_server
from finishline.cli.options import ROOT, shows
from finishline.cli.own_benchmarks import (
    broken,
    definition_file,
    find_tasks,
    read_files,
    read_task,
    write_new,
    write_template,
)
from finishline.cli.processes import FAILED, TRAIN, box_events, require_seeds
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.tables import seconds_text
from finishline.client.errors import FinishlineError
from finishline.package_folder import package_folder
from finishline.places import installed_server
from finishline.rules.benchmarks.definition_tables import REFERENCE
from finishline.rules.submissions.claim import MAX_TRAINED_SEED
from finishline.rules.text import count_text
from finishline.rules.trainings.own_benchmark import FILE
from finishline.rules.trainings.package import LARGEST_FILE_BYTES, Package, read_package
from finishline.rules.verification.messages import PACKAGE_PREFIX

PHASE_TIMEOUT = httpx2.Timeout(5.0)
TEMPLATE, TEMPLATE_BENCHMARK = "finishline.rules.trainings.template", "digits"


@shows
def init(
    screen: Screen, path: Annotated[Path, Argument(help="The folder to make.", metavar="DIR")]
) -> None:
    """Write a running example code submission into a new folder.

    A folder named like a benchmark gets its reference, any other an example for digits.
    """
    task = None if path.name == TEMPLATE_BENCHMARK else find_tasks(None).get(path.name)
    home, warnings = f"{path.name}/{REFERENCE}", []
    if task is None:
        written = write_template(TEMPLATE, path, lambda text: text)
    else:
        _, files = read_task(task)
        own = {each.removeprefix(home): files[each] for each in files if each.startswith(home)}
        written = write_new(path, own)
        warnings = [f"The reference of {path.name}. Change it: a copy is a duplicate."]
    lines = [f"Wrote {', '.join(written)} to {path}.", *warnings, _next_step(path)]
    screen.answer({"path": str(path), "files": written}, lines)


def check_code(screen: Screen, path: Path, benchmarks_dir: Path | None) -> None:
    """List every problem of a code submission, with file and line, without running it."""
    # Without finishline-server there may be no definition here at all.
    code = open_code(path, benchmarks=find_tasks(benchmarks_dir, path) or None)
    document = {
        "sha256": code.sha256,
        "bytes": code.size_bytes,
        "files": {name: len(content) for name, content in sorted(code.files.items())},
        "manifest": code.manifest.model_dump(),
    }
    lines: list[Text | str] = [
        Text.assemble(("ok ", "bold green"), f"{code.manifest.title}, ", f"{path}"),
        f"{len(code.files)} files, {code.size_bytes} bytes, sha256 {code.sha256}",
        "A server checks besides: whether the code was handed in before, its parent, the "
        "quota, the phase of the benchmark, and whether a worker has the environment "
        f"{code.manifest.environment} (`finishline admin worker list` lists them).",
        as_it_is(_next_step(path)),
    ]
    screen.answer(document, lines)


Nonce = Annotated[
    str | None,
    Option(help="Source of data and seeds, 64 hex digits. It repeats runs of code."),
]
Plain = Annotated[
    bool,
    Option("--plain", help="Train code outside the sandbox, with your own rights."),
]


def run_code(
    screen: Screen,
    path: Path,
    *,
    runs: int,
    seed: int | None,
    nonce: str | None,
    plain: bool,
    data: Path,
    benchmarks_dir: Path | None,
) -> ExitCode:
    require_server("run")
    code, tasks = open_trainable(path, benchmarks_dir)
    notice = tell_phase(screen, code.manifest.benchmark)
    boxed = in_box(code, tasks, runs=runs, seed=seed, nonce=nonce, plain=plain)
    with boxed as (arguments, unit):
        arguments.append(f"--data-dir={data.absolute()}")
        finished, drawn, exit_code = train_in_box(arguments, screen, unit=unit)
    drawn = drawn or nonce
    document = {"nonce": drawn, "package_sha256": code.sha256, "runs": finished, "notice": notice}
    screen.answer(document, _result_lines(finished, drawn, path))
    return exit_code


@contextmanager
def in_box(
    code: Package,
    tasks: Mapping[str, Path],
    *,
    runs: int,
    seed: int | None,
    nonce: str | None,
    plain: bool,
) -> Iterator[tuple[list[str], str]]:
    """Put code and its task into folders. Yields its training's arguments and the target's unit."""
    name = code.manifest.benchmark
    definition, task = read_task(tasks[name])
    if nonce is not None and not re.fullmatch("[0-9a-f]{64}", nonce):
        raise UsageError("--nonce: expected 64 hex digits.")
    require_seeds(seed, runs, most=MAX_TRAINED_SEED)
    arguments = ["--runs", str(runs)]
    arguments += ["--seed", str(seed)] if seed is not None else []
    arguments += ["--nonce", nonce] if nonce is not None else []
    arguments += ["--plain"] if plain else []
    # Only for your own task. A fetched task is NAME.toml next to NAME/.
    arguments += ["--plain-task"] if plain and tasks[name].name == FILE else []
    with package_folder(code.files) as folder, definition_file(name, task) as file:
        yield [str(folder), str(file), *arguments], definition.target.unit


def tell_phase(screen: Screen, benchmark_id: str) -> str | None:
    """Warn if a known server takes no submissions of a benchmark now, or does not answer."""
    if not ROOT.is_server_known:
        return None
    try:
        with connect(timeout=PHASE_TIMEOUT) as server:
            found = server.get(f"/benchmarks/{segment(benchmark_id)}")
            phases = dict(found.get("phases") or {})
    except FinishlineError as error:
        notice = f"The phase of {benchmark_id} is not known: {cli_error(error).message}"
    else:
        if phases.get("takes_submissions", True):
            return None
        told = f"{benchmark_id} takes no submissions at {server.url} now."
        notice = f"warning: {told} {phases.get('sentence', '')}".strip()
    if not screen.as_json:  # With --json, stderr has one document, of an error.
        typer.echo(notice, err=True)
    return notice


def open_code(path: Path, *, benchmarks: Iterable[str] | None) -> Package:
    """Open the code submission in a folder. Raises CliError with every rule it breaks.

    Without `benchmarks` the server checks its benchmark.
    """
    files, problems = read_files(path, "code submission", "init")
    code, found = read_package(files, benchmarks=benchmarks)
    if code is None or problems or found:
        raise broken(path, [*problems, *found], "code submission")
    return code


def open_trainable(path: Path, benchmarks_dir: Path | None) -> tuple[Package, dict[str, Path]]:
    """Open the code in a folder, and list the tasks here. Raises CliError if its task is absent."""
    if benchmarks_dir is not None and not benchmarks_dir.is_dir():
        expected = "one of benchmark definitions, such as digits.toml with the folder digits/"
        raise UsageError(f"--benchmarks-dir {benchmarks_dir} is not a folder; expected {expected}.")
    tasks = find_tasks(benchmarks_dir, path)
    return open_code(path, benchmarks=tasks), tasks


def _next_step(path: Path) -> str:
    """Return the next command: only finishline-server trains code submissions here."""
    if installed_server() is None:
        return f"Next: finishline submit {path}"
    return f"Next: finishline run {path}, then finishline submit {path}"


def train_in_box(
    arguments: list[str], screen: Screen, *, unit: str
) -> tuple[list[dict[str, Any]], str | None, ExitCode]:
    """Return the finished runs of code, the nonce of their seeds, and the exit code."""
    finished: list[dict[str, Any]] = []
    drawn, code = None, 0
    for event in box_events(TRAIN, arguments):
        if event["kind"] == "exit":
            code = event["code"]
        elif event["kind"] == "run_started":
            drawn = event["nonce"]
        elif event["kind"] == "run_finished":
            finished.append(event)
        screen.say(*event_lines(event, unit=unit))
    return finished, drawn, FAILED.get(code, ExitCode.OK)


def event_lines(event: Mapping[str, Any], *, unit: str) -> Iterator[Text]:
    sign = " %" if unit == "percent" else ""
    name, budget = f"run {event.get('run')}: ", event.get("budget_seconds")
    if event["kind"] == "box":
        how = "without a sandbox" if event["entries"] == "off" else "in a sandbox"
        why = "" if event["why"] is None else f" ({event['why']})"
        yield Text(f"Training {how}{why}.", style="dim")
    elif event["kind"] == "asked":
        seconds = seconds_text(event["seconds"])
        yield Text(f"{name}{event['quality']:.2f}{sign} after {seconds}")
    elif event["kind"] == "run_finished":
        if event["status"] == "reached":
            reached = f"reached the target in {seconds_text(event['seconds'])}"
            if budget is not None:
                reached = f"{event['quality']:.2f}{sign} within {budget:g} s"
            yield Text.assemble(name, (reached, "green"))
        elif event["status"] == "not_reached":
            missed = "ended below the target"
            if budget is not None:
                missed = f"had no evaluation within the budget of {budget:g} s"
            yield Text.assemble(name, (missed, "yellow"))
        else:
            yield Text.assemble(name, (f"{event['code']}: {event['message']}", "bold red"))
            if event["status"] == "failed" and event["log_tail"]:
                yield as_it_is(event["log_tail"].rstrip())


def _result_lines(finished: list[dict[str, Any]], nonce: str | None, path: Path) -> Iterator[Text]:
    reached = [each for each in finished if each["status"] == "reached"]
    if reached and len(reached) == len(finished):
        name = "seconds" if reached[0]["budget_seconds"] is None else "quality"
        mean = sum(each[name] for each in reached) / len(reached)
        words = f"time of {count_text(len(reached), 'run')}: {seconds_text(mean)}"
        if name == "quality":
            words = f"quality of {count_text(len(reached), 'run')}: {mean:.2f}"
        yield Text(f"Mean {words}.")
    else:
        budget = next((each["budget_seconds"] for each in finished), None)
        goal = "reached the target" if budget is None else "had an evaluation within the budget"
        yield Text(f"{len(reached)} of {count_text(len(finished), 'run')} {goal}.")
    if nonce is not None:
        yield as_it_is(f"Repeat these runs: finishline run {path} --nonce {nonce}")


def fetch_code(server: ServerClient, name: str) -> Package:
    """Fetch published code by `sha256:` and its hash, which is checked here. Raises CliError."""
    sha256 = name.removeprefix(PACKAGE_PREFIX)
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise UsageError(f"{name}: expected sha256: and 64 hex digits.")
    found = server.get("/submissions", package=sha256, limit=1)["submissions"]
    if not found:
        raise CliError(
            f"{server.url} has no code {name}; expected the SHA-256 that a submission's page "
            "and `finishline show` have it.",
            exit_code=ExitCode.NOT_FOUND,
        )
    path = f"/submissions/{segment(str(found[0]['id']))}/package"
    listed = server.get(path)["files"]
    if not listed:
        raise CliError(
            f"The source of {name} is not published yet. Its first verdict publishes it.",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    files = {
        str(each["name"]): server.download(
            f"{path}/files/{each['name']}", limit_bytes=LARGEST_FILE_BYTES
        )
        for each in listed
    }
    code, _ = read_package(files, benchmarks=None)
    if code is None or code.sha256 != sha256:
        raise CliError(f"{server.url} sent other files than those of {name}.")
    return code

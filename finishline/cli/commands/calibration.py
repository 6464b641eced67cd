"""`finishline calibrate` and `calibration show`: measure a reference, and its runs as TOML."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from finishline.cli.answers import calibration_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.requests import COMMANDS
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import Screen, open_screen
from finishline.rules.benchmarks.benchmark import ReferenceRun
from finishline.rules.text import count_text
from finishline.rules.verification.bands import reference_run_toml

app = COMMANDS["calibration"]
POLL_SECONDS = 1.0
Show = Callable[[View], None]


def calibrate(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark.")],
    batch_sizes: Annotated[
        str | None, typer.Option("--batch-sizes", help="For example 32,64,128.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, max=200, help="Runs at each batch size.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="fp32, tf32, bf16 or fp16 (default: the reference's)."),
    ] = None,
    continued: Annotated[
        str | None, typer.Option("--continue", help="Continue this calibration.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until every run is trained.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Reason; shown with the calibration.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Train the reference to its end with sealed seeds, many times (organisers only).

    With --watch the exit code is 0 if every run was trained and 3 if some failed.
    """
    screen = open_screen(as_json=as_json)
    sizes = read_batch_sizes(batch_sizes) if batch_sizes is not None else None
    if continued is not None and precision is not None:
        raise CliError(
            "--continue goes on in the calibration's own precision. Remove --precision.",
            exit_code=ExitCode.USAGE,
        )
    with ServerClient(url, token) as server:
        if continued is None:
            view = start(server, benchmark, sizes, runs, precision=precision, reason=reason)
        else:
            view = go_on(server, continued, benchmark, sizes, runs)
        if not watch:
            screen.answer(view, calibration_lines(view, {}))
            return int(ExitCode.OK)
        view = watch_calibration(server, view, screen)
    screen.answer(view, calibration_lines(view, {}))
    return int(ExitCode.OK if view["state"] == "done" else ExitCode.NOT_VERIFIED)


def start(
    server: ServerClient,
    benchmark: str,
    sizes: list[int] | None,
    runs: int | None,
    *,
    precision: str | None,
    reason: str | None,
) -> View:
    """The view of a new calibration. Raises CliError."""
    if sizes is None or runs is None:
        raise CliError(
            "A new calibration needs --batch-sizes and --runs, for example "
            f"`finishline calibrate {benchmark} --batch-sizes 32,64 --runs 20`.",
            exit_code=ExitCode.USAGE,
        )
    body: dict[str, object] = {"benchmark": benchmark, "batch_sizes": sizes, "runs": runs}
    body["reason"] = reason
    if precision is not None:  # A server of before does not know the field.
        body["precision"] = precision
    view: View = server.post("/calibrations", body)
    return view


def go_on(
    server: ServerClient,
    calibration: str,
    benchmark: str,
    sizes: list[int] | None,
    runs: int | None,
) -> View:
    """The view of a calibration that goes on. Raises CliError."""
    path = f"/calibrations/{segment(calibration)}"
    found = server.get(path)
    if found["benchmark"] != benchmark:
        raise CliError(
            f"Calibration {calibration} belongs to {found['benchmark']}, not to {benchmark}.",
            exit_code=ExitCode.USAGE,
        )
    view: View = server.post(f"{path}/continue", {"batch_sizes": sizes, "runs": runs})
    return view


def read_batch_sizes(text: str) -> list[int]:
    """Whole numbers between commas. Raises CliError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise CliError(
            f"--batch-sizes {text}: expected whole numbers between commas, such as 32,64,128.",
            exit_code=ExitCode.USAGE,
        ) from error


@app.command("show")
def show_calibration(
    calibration: Annotated[str, typer.Argument(metavar="ID", help="Id of a calibration.")],
    toml: Annotated[
        bool, typer.Option("--toml", help="Print its runs in the format of a benchmark file.")
    ] = False,
    runs: Annotated[bool, typer.Option("--runs", help="With --json: include every run.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show epochs to converge by batch size, or the runs themselves."""
    path = f"/calibrations/{segment(calibration)}"
    with ServerClient(url, token) as server:
        view = server.get(f"{path}/runs" if toml or (runs and as_json) else path)
    screen = open_screen(as_json=as_json)
    if toml and not as_json:
        # A console would wrap the long lines.
        typer.echo("\n".join(calibration_toml(view)))
        return int(ExitCode.OK)
    screen.answer(view, [] if as_json else calibration_lines(view, {}))
    return int(ExitCode.OK)


def calibration_toml(view: View) -> Iterable[str]:
    """The runs that went to their end as the `[[reference_runs]]` of a benchmark file."""
    yield (
        f"# Calibration {view['id']} of {view['benchmark']}, version {view['version']},\n"
        f"# requested on {str(view['created_at'])[:10]}; runs {view['runs_sha256']}."
    )
    for made_on in sorted({_made_on(run["system"]) for run in view["runs"]}):
        yield f"# Made on {made_on}."
    for run in view["runs"]:
        if run["status"] in ("reached", "not_reached"):
            quality = tuple(float(value) for value in run["quality"])
            yield "\n" + reference_run_toml(
                ReferenceRun(batch_size=run["batch_size"], seed=run["seed"], quality=quality)
            )


def _made_on(system: View) -> str:
    software = ", ".join(f"{name} {found}" for name, found in sorted(system["software"].items()))
    return " ".join(f"{system['processor']}, {software}".split())


def watch_calibration(
    server: ServerClient,
    view: View,
    screen: Screen,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> View:
    """Show a calibration until nothing of it is under way; its last view. Raises CliError."""
    with progress_screen(screen) as show:
        show(view)
        while view["state"] == "running":
            wait(POLL_SECONDS)
            view = server.get(f"/calibrations/{segment(str(view['id']))}")
            show(view)
    return view


def runs_trained(view: View) -> int:
    """Runs that are finished, and those of chunks under way that are trained already."""
    return sum(int(size["finished"]) + int(size["under_way"]) for size in view["sizes"])


@contextmanager
def progress_screen(screen: Screen) -> Iterator[Show]:
    """Something that shows how far a calibration is."""
    if screen.as_json or not screen.console.is_terminal:
        yield _line_by_line(screen)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=screen.console) as progress:
        bars = {}

        def show(view: View) -> None:
            for size in view["sizes"]:
                name = f"batch size {size['batch_size']}"
                if name not in bars:
                    bars[name] = progress.add_task(name, total=size["planned"])
                trained = size["finished"] + size["under_way"]
                progress.update(bars[name], completed=trained, total=size["planned"])

        yield show


def _line_by_line(screen: Screen) -> Show:
    said: list[int] = []

    def show(view: View) -> None:
        trained = runs_trained(view)
        if trained not in said:
            said.append(trained)
            screen.say(f"  {trained} of {count_text(view['runs_planned'], 'run')} trained")

    return show

"""`finishline calibrate`: measure a benchmark's reference on the workers."""

from typing import Annotated

import typer

from finishline.cli.calibration_tables import calibration_lines
from finishline.cli.calibration_watching import watch_calibration
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen


def calibrate(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark.")],
    batch_sizes: Annotated[
        str | None, typer.Option("--batch-sizes", help="For example 32,64,128.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, max=200, help="Runs at each batch size.")
    ] = None,
    continued: Annotated[
        str | None, typer.Option("--continue", help="Go on with this calibration.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until every run is made.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with it.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Train the reference to its end with sealed seeds, many times (organisers only).

    With --watch the exit code is 0 when every run was made and 3 when some could not be.
    """
    screen = open_screen(as_json=as_json)
    sizes = read_batch_sizes(batch_sizes) if batch_sizes is not None else None
    with ServerClient(url, token) as server:
        if continued is None:
            view = start(server, benchmark, sizes, runs, reason=reason)
        else:
            view = go_on(server, continued, benchmark, sizes, runs)
        if not watch:
            screen.answer(view, calibration_lines(view))
            return int(ExitCode.OK)
        view = watch_calibration(server, view, screen)
    screen.answer(view, calibration_lines(view))
    return int(ExitCode.OK if view["state"] == "done" else ExitCode.NOT_VERIFIED)


def start(
    server: ServerClient,
    benchmark: str,
    sizes: list[int] | None,
    runs: int | None,
    *,
    reason: str | None,
) -> View:
    """The view of a new calibration. Raises CliError."""
    if sizes is None or runs is None:
        raise CliError(
            "A new calibration needs --batch-sizes and --runs, for example "
            f"`finishline calibrate {benchmark} --batch-sizes 32,64 --runs 20`.",
            exit_code=ExitCode.USAGE,
        )
    body = {"benchmark": benchmark, "batch_sizes": sizes, "runs": runs, "reason": reason}
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
            f"Calibration {calibration} is one of {found['benchmark']}, not of {benchmark}.",
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

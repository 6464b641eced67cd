"""`finishline calibrate` and `calibration`: measure a reference, adopt, compare."""

from typing import Annotated

import typer

from finishline.cli.calibration_tables import (
    calibration_lines,
    calibration_table,
    calibration_toml,
    comparison_table,
    watch_calibration,
)
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Limit, Token, Url
from finishline.cli.screen import open_screen


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


app = typer.Typer(no_args_is_help=True, help="List, show, compare, adopt and cancel calibrations.")
Calibration = Annotated[str, typer.Argument(metavar="ID", help="Id of a calibration.")]


@app.command("list")
def list_calibrations(
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Only calibrations of this benchmark.")
    ] = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List calibrations, newest first."""
    with ServerClient(url, token) as server:
        view = server.get("/calibrations", benchmark=benchmark, limit=min(limit, 100))
    open_screen(as_json=as_json).answer(view, [calibration_table(view["calibrations"])])
    return int(ExitCode.OK)


@app.command("show")
def show_calibration(
    calibration: Calibration,
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
    screen.answer(view, [] if as_json else calibration_lines(view))
    return int(ExitCode.OK)


@app.command("compare")
def compare_calibrations(
    calibration: Calibration,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[WITH]", help="Calibration to compare with (default: the file's own runs)."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Compare two calibrations batch size by batch size."""
    path = f"/calibrations/{segment(calibration)}/compare"
    with ServerClient(url, token) as server:
        view = server.get(path, **{"with": other})
    open_screen(as_json=as_json).answer(view, [comparison_table(view)])
    return int(ExitCode.OK)


@app.command("adopt")
def adopt_calibration(
    calibration: Calibration,
    reason: Annotated[str, typer.Option("--reason", help="Reason; shown with the calibration.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Use a calibration for replays planned from now on (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.post(f"/calibrations/{segment(calibration)}/adopt", {"reason": reason})
    open_screen(as_json=as_json).answer(view, calibration_lines(view))
    return int(ExitCode.OK)


@app.command("cancel")
def cancel_calibration(
    calibration: Calibration, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Cancel the remaining runs and keep the finished ones (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.post(f"/calibrations/{segment(calibration)}/cancel", {})
    open_screen(as_json=as_json).answer(view, calibration_lines(view))
    return int(ExitCode.OK)

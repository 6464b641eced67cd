"""`finishline calibration`: list, show, compare, adopt and cancel calibrations."""

from typing import Annotated

import typer

from finishline.cli.calibration_tables import (
    calibration_lines,
    calibration_table,
    calibration_toml,
    comparison_table,
)
from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Limit, Token, Url
from finishline.cli.screen import open_screen

app = typer.Typer(no_args_is_help=True, help="List, show, compare, adopt and cancel calibrations.")
Calibration = Annotated[str, typer.Argument(metavar="ID", help="Id of a calibration.")]


@app.command("list")
def list_calibrations(
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Of this benchmark only.")
    ] = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """List calibrations, newest first."""
    with ServerClient(url) as server:
        view = server.get("/calibrations", benchmark=benchmark, limit=min(limit, 100))
    open_screen(as_json=as_json).answer(view, [calibration_table(view["calibrations"])])
    return int(ExitCode.OK)


@app.command("show")
def show_calibration(
    calibration: Calibration,
    toml: Annotated[
        bool, typer.Option("--toml", help="Write its runs as a benchmark file holds them.")
    ] = False,
    runs: Annotated[bool, typer.Option("--runs", help="With --json: every run behind it.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """Show epochs to converge by batch size, or the runs themselves."""
    path = f"/calibrations/{segment(calibration)}"
    with ServerClient(url) as server:
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
        typer.Argument(metavar="[WITH]", help="Another one; else the benchmark file's own runs."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """Compare two calibrations batch size by batch size."""
    path = f"/calibrations/{segment(calibration)}/compare"
    with ServerClient(url) as server:
        view = server.get(path, **{"with": other})
    open_screen(as_json=as_json).answer(view, [comparison_table(view)])
    return int(ExitCode.OK)


@app.command("adopt")
def adopt_calibration(
    calibration: Calibration,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with it.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Judge by a calibration what is planned from now on (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.post(f"/calibrations/{segment(calibration)}/adopt", {"reason": reason})
    open_screen(as_json=as_json).answer(view, calibration_lines(view))
    return int(ExitCode.OK)


@app.command("cancel")
def cancel_calibration(
    calibration: Calibration, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """End what is under way and keep what is finished (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.post(f"/calibrations/{segment(calibration)}/cancel", {})
    open_screen(as_json=as_json).answer(view, calibration_lines(view))
    return int(ExitCode.OK)

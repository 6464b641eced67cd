"""`finishline up`: everything on this machine, under one supervisor."""

from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_VAR, Json, Var
from finishline.cli.processes import python_module
from finishline.cli.screen import open_screen
from finishline.cli.up.services import url_of
from finishline.cli.up.start import UpOptions, run_up


def up(
    host: Annotated[
        str, typer.Option("--host", envvar="FINISHLINE_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", envvar="FINISHLINE_PORT", min=1, max=65535, help="Port to listen on."
        ),
    ] = 8000,
    var: Var = DEFAULT_VAR,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Also start one CPU worker.")
    ] = True,
    demo: Annotated[
        bool, typer.Option("--demo", help="Run the demo once everything is up.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --demo: stop everything after the verdict.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start broker, server and one worker on this machine, and keep them running.

    Ctrl-C or SIGTERM stops all of it. With --json one document is written once all is ready.
    """
    _refuse_contradictions(worker=worker, demo=demo, once=once, as_json=as_json)
    options = UpOptions(
        host=host,
        port=port,
        var=var,
        worker=worker,
        demo=_demo_command(url_of(host, port), var) if demo else None,
        once=once,
    )
    return run_up(options, open_screen(as_json=as_json))


def _refuse_contradictions(*, worker: bool, demo: bool, once: bool, as_json: bool) -> None:
    for wrong, sentence in (
        (once and not demo, "--once goes with --demo; without it there is no verdict to wait for."),
        (demo and not worker, "--demo needs the worker that --no-worker leaves out."),
        (demo and as_json, "--demo prints for people; run `finishline demo --json` beside `up`."),
    ):
        if wrong:
            raise CliError(sentence, exit_code=ExitCode.USAGE)


def _demo_command(url: str, var: Path) -> list[str]:
    return python_module("finishline.cli.main", "demo", "--url", url, "--var", str(var.absolute()))

"""`finishline up`: a whole server on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import (
    DEFAULT_VAR,
    BehindProxy,
    Json,
    Var,
)
from finishline.cli.processes import python_module
from finishline.cli.screen import open_screen


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
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            envvar=["FINISHLINE_DEVICES", "FINISHLINE_DEVICE"],
            help="Devices that train, one worker each: cpu, cuda:0,cuda:1 or all.",
        ),
    ] = "cpu",
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Also start the workers.")
    ] = True,
    behind_proxy: BehindProxy = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Run the demo once everything is up.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --demo: stop everything after the verdict.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start broker, server and workers on this machine, and keep them running.

    Ctrl-C or SIGTERM stops everything. --json writes one document when everything is ready.
    """
    _refuse_contradictions(worker=worker, demo=demo, once=once, as_json=as_json)
    # A supervisor needs psutil, which comes with the server, and POSIX.
    from server.commands.services import url_of
    from server.commands.start import UpOptions, run_up

    options = UpOptions(
        host=host,
        port=port,
        var=var,
        devices=devices if worker else None,
        demo=_demo_command(url_of(host, port), var) if demo else None,
        once=once,
        behind_proxy=behind_proxy,
    )
    return run_up(options, open_screen(as_json=as_json))


def _refuse_contradictions(*, worker: bool, demo: bool, once: bool, as_json: bool) -> None:
    for wrong, sentence in (
        (once and not demo, "--once needs --demo: without it there is no verdict to wait for."),
        (demo and not worker, "--demo needs a worker. Remove --no-worker."),
        (demo and as_json, "--demo has no JSON output."),
    ):
        if wrong:
            raise CliError(sentence, exit_code=ExitCode.USAGE)


def _demo_command(url: str, var: Path) -> list[str]:
    return python_module("server.commands.demo", url, str(var.absolute()))

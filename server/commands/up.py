"""`finishline up`: a whole server on this machine: its folders, tokens, and services in order."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.text import Text

from finishline.cli.errors import ExitCode, UsageError
from finishline.cli.options import shows
from finishline.cli.processes import python_module, require_training_packages
from finishline.cli.screen import Screen, as_it_is
from server.base.database import Database
from server.base.schema import migrate
from server.commands import administer
from server.commands.paths import (
    DEFAULT_VAR,
    BehindProxy,
    Var,
    VarPaths,
    lock_var,
    prepare_var,
    require_free_port,
)
from server.commands.services import (
    LocalWorker,
    Plan,
    broker_executable,
    broker_socket,
    choose_workers,
    redis_service,
    server_service,
    url_of,
    worker_service,
)
from server.commands.supervisor import StopAskedError, Supervisor

# file name -> (user, role). Each worker has a further token
BOOTSTRAPPED = {
    "admin": ("admin", "admin"),
    "organiser": ("organiser", "organiser"),
    "demo": ("demo", "submitter"),
}
NO_BUBBLEWRAP = (
    "bubblewrap is not installed, so the workers here train no code submissions. On Debian and "
    "Ubuntu: apt install bubblewrap"
)
OWNER_OF_WORKERS = "worker"
STOPPED_BY = {"SIGINT": "Ctrl-C was pressed", "SIGHUP": "the terminal was closed"}


@shows
def up(
    screen: Screen,
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
) -> int:
    """Start broker, server and workers on this machine, and keep them running.

    Ctrl-C or SIGTERM stops everything. --json writes one document when everything is ready.
    """
    for wrong, sentence in (
        (once and not demo, "--once needs --demo: without it there is no verdict to wait for."),
        (demo and not worker, "--demo needs a worker. Remove --no-worker."),
        (demo and screen.as_json, "--demo has no JSON output."),
    ):
        if wrong:
            raise UsageError(sentence)
    workers: Sequence[LocalWorker] = ()
    if worker:
        require_training_packages("up")
        workers = choose_workers(devices)
        if os.environ.get("FINISHLINE_BOX", "bwrap") == "bwrap" and shutil.which("bwrap") is None:
            screen.say(Text(f"warning: {NO_BUBBLEWRAP}", "yellow"))
    broker_executable()  # A machine without one is told before a folder is made.
    before = os.umask(0o077)
    try:
        paths = prepare_var(var)
        with lock_var(paths, url=url_of(host, port)), broker_socket(paths) as socket:
            require_free_port(host, port)
            plan = Plan(paths, host, port, socket, behind_proxy)
            return _supervise(plan, workers, screen, demo=demo, once=once)
    finally:
        os.umask(before)


def _supervise(
    plan: Plan, workers: Sequence[LocalWorker], screen: Screen, *, demo: bool, once: bool
) -> int:
    """Run everything until someone asks to stop. Returns the exit code. Raises CliError."""
    supervisor = Supervisor(say=screen.say)
    supervisor.listen_to_signals()
    is_up = False
    try:
        document = _bring_up(plan, workers, supervisor)
        is_up = True
        screen.answer(document, [])
        screen.say(*map(as_it_is, invitation(plan, workers, is_demo=demo)))
        if demo:
            command = python_module("server.commands.demo", plan.url, str(plan.paths.root))
            code = supervisor.run("demo", command, plan.environment())
            if once:
                return code
            screen.say(f"The server keeps running at {plan.url}; stop it with Ctrl-C.")
        supervisor.keep()
    except StopAskedError:
        # Asked to exit after a verdict, a stop before it is not a verdict.
        return int(ExitCode.NOT_VERIFIED) if once else int(ExitCode.OK)
    finally:
        by = supervisor.stopped_by
        why = "" if is_up or by is None else f": {STOPPED_BY.get(by, f'{by} arrived')} before"
        screen.say(f"Stopping{why} everything was ready." if why else "Stopping.")
        supervisor.stop()
    return int(ExitCode.OK)


def _bring_up(
    plan: Plan, workers: Sequence[LocalWorker], supervisor: Supervisor
) -> dict[str, object]:
    began = time.monotonic()
    with administer.opened(plan.paths.database_url) as database:
        failed = f"The database {plan.paths.database} could not be migrated"
        with administer.told(failed, exit_code=ExitCode.SERVER):
            migrate(database)
        supervisor.say(f"database is migrated ({time.monotonic() - began:.1f} s)")
        failed = "The tokens of this machine could not be made"
        with administer.told(failed, exit_code=ExitCode.SERVER):
            tokens = ensure_tokens(plan.paths, database, workers, supervisor.say)
        services = [redis_service(plan), server_service(plan)]
        seconds = {service.name: supervisor.start(service) for service in services}
        # Each worker has an account of its own at the broker, and an address with its password.
        addresses = administer.make_accounts(plan.broker_url, [each.name for each in workers])
        for each, address in zip(workers, addresses, strict=True):
            # Ready when the server has heard from this very process.
            heard = partial(administer.was_heard, database, each.name)
            worker = worker_service(plan, each, tokens[each.service], address, heard)
            services.append(worker)
            seconds[worker.name] = supervisor.start(worker)
            administer.confirm(database, each.name, OWNER_OF_WORKERS, again=False)
    pids = supervisor.pids()
    return {
        "url": plan.url,
        "var": str(plan.paths.root),
        "seconds": round(time.monotonic() - began, 3),
        "services": [
            {
                "name": service.name,
                "pid": pids[service.name],
                "log": str(service.log),
                "seconds_to_ready": round(seconds[service.name], 3),
            }
            for service in services
        ],
        "tokens": {name: str(path) for name, path in tokens.items()},
    }


def invitation(plan: Plan, workers: Sequence[LocalWorker], *, is_demo: bool) -> list[str]:
    """Next commands for a person who has just started it, ready to copy."""
    paths = plan.paths
    # A command in another terminal does not know the port, and may be logged in elsewhere.
    export = f"export FINISHLINE_URL={plan.url} FINISHLINE_TOKEN=$(cat "
    lines = [
        f"Finishline is up at {plan.url} (API at {plan.url}/docs/api, logs in {paths.logs}).",
        f"To submit: {export}{quote(str(paths.token('demo')))})",
        f"To manage users and organisations: {export}{quote(str(paths.token('admin')))})",
        f"To keep it safe: finishline admin backup --var {quote(str(paths.root))}",
        *(f"Worker {each.name}: {each.words}" for each in workers),
    ]
    if not workers:
        lines.append("No worker runs here: verifications wait until one reports.")
    if not is_demo:
        lines.append("Stop it with Ctrl-C.")
    return lines


def ensure_tokens(
    paths: VarPaths,
    database: Database,
    workers: Sequence[LocalWorker],
    say: Callable[[str], None],
) -> Mapping[str, Path]:
    """The file of each bootstrapped token. Those the database does not take are made anew."""
    owners = BOOTSTRAPPED | {each.service: (OWNER_OF_WORKERS, "worker") for each in workers}
    made = []
    for name, (user, role) in owners.items():
        # Of its own machine's participant `up` takes packages, whatever bounds their memory.
        known = role == "submitter"
        if administer.keep_token(database, paths.token(name), user, role, known=known) is not None:
            made.append(f"{user} ({role})")
    if made:
        say(f"made tokens for {', '.join(dict.fromkeys(made))}")
    return {name: paths.token(name) for name in owners}

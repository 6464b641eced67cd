"""`finishline up`: a whole server on this machine: its folders, tokens, and services in order."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.text import Text

from finishline.cli.client import ServerClient
from finishline.cli.errors import ExitCode, UsageError
from finishline.cli.options import shows
from finishline.cli.processes import python_module, require_training_packages
from finishline.cli.screen import Screen, as_it_is
from finishline.client.errors import NotAllowed, NotSignedIn
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
    choose_redis_address,
    choose_workers,
    read_token,
    redis_service,
    server_service,
    url_of,
    worker_is_confirmed,
    worker_service,
)
from server.commands.supervisor import StopAskedError, Supervisor

# file name -> (user, role); each worker has a token of its own beside them
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


@dataclass(frozen=True)
class UpOptions:
    """Options of `finishline up`. `demo` is the demo's own command line, or None.

    `devices` names those that train, or is None for no worker. `behind_proxy` believes a proxy on
    this machine on the addresses of clients.
    """

    host: str
    port: int
    var: Path
    devices: str | None
    demo: list[str] | None
    once: bool
    behind_proxy: bool = False


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
    demo_command = python_module("server.commands.demo", url_of(host, port), str(var.absolute()))
    options = UpOptions(
        host=host,
        port=port,
        var=var,
        devices=devices if worker else None,
        demo=demo_command if demo else None,
        once=once,
        behind_proxy=behind_proxy,
    )
    return run_up(options, screen)


def run_up(options: UpOptions, screen: Screen) -> int:
    """Run everything until someone asks to stop; the exit code. Raises CliError."""
    workers: Sequence[LocalWorker] = ()
    if options.devices is not None:
        require_training_packages("up")
        workers = choose_workers(options.devices)
        if os.environ.get("FINISHLINE_BOX", "bwrap") == "bwrap" and shutil.which("bwrap") is None:
            screen.say(Text(f"warning: {NO_BUBBLEWRAP}", "yellow"))
    broker_executable()  # A machine without one is told before a folder is made.
    before = os.umask(0o077)
    try:
        return _run_in(options, workers, screen)
    finally:
        os.umask(before)


def _run_in(options: UpOptions, workers: Sequence[LocalWorker], screen: Screen) -> int:
    paths = prepare_var(options.var)
    with lock_var(paths, url=url_of(options.host, options.port)):
        require_free_port(options.host, options.port)
        broker = choose_redis_address(paths)
        plan = Plan(paths, options.host, options.port, broker, options.behind_proxy)
        try:
            return _supervise(options, plan, workers, screen)
        finally:
            if broker.socket_path is not None and broker.socket_path.parent != paths.redis:
                shutil.rmtree(broker.socket_path.parent, ignore_errors=True)


def _supervise(
    options: UpOptions, plan: Plan, workers: Sequence[LocalWorker], screen: Screen
) -> int:
    supervisor = Supervisor(say=screen.say)
    supervisor.listen_to_signals()
    is_up = False
    try:
        document = _bring_up(plan, workers, supervisor)
        is_up = True
        screen.answer(document, [])
        screen.say(*map(as_it_is, invitation(options, plan, workers)))
        if options.demo is not None:
            code = supervisor.run("demo", options.demo, plan.environment(), None)
            if options.once:
                return code
            screen.say(f"The server keeps running at {plan.url}; stop it with Ctrl-C.")
        supervisor.keep()
    except StopAskedError:
        # Asked to exit after a verdict, a stop before it is not a verdict.
        return int(ExitCode.NOT_VERIFIED) if options.once else int(ExitCode.OK)
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
        services = [redis_service(plan), server_service(plan)]
        seconds = {service.name: supervisor.start(service) for service in services}
        failed = "The tokens of this machine could not be made"
        with administer.told(failed, exit_code=ExitCode.SERVER):
            tokens = ensure_tokens(plan, database, workers, supervisor.say)
        # Each worker has an account of its own at the broker, and an address with its password.
        addresses = administer.make_accounts(plan.broker.url, [each.name for each in workers])
        for each, address in zip(workers, addresses, strict=True):
            token = tokens[each.service]
            worker = worker_service(plan, each, token, address)
            services.append(worker)
            seconds[worker.name] = supervisor.start(worker)
            if not worker_is_confirmed(plan.url, each.name, token):
                administer.confirm(database, each.name, OWNER_OF_WORKERS)
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


def invitation(options: UpOptions, plan: Plan, workers: Sequence[LocalWorker]) -> list[str]:
    """Next commands for a person who has just started it, ready to copy."""
    paths = plan.paths
    # A command in another terminal does not know the port, and may be logged in elsewhere.
    export = f"export FINISHLINE_URL={plan.url} FINISHLINE_TOKEN=$(cat "
    lines = [
        f"Finishline is up at {plan.url} (API at {plan.url}/docs/api, logs in {paths.logs}).",
        f"To submit: {export}{quote(str(token_path(paths, 'demo')))})",
        f"To manage users and organisations: {export}{quote(str(token_path(paths, 'admin')))})",
        f"To keep it safe: finishline admin backup --var {quote(str(paths.root))}",
        *(f"Worker {each.name}: {each.words}" for each in workers),
    ]
    if not workers:
        lines.append("No worker runs here: verifications wait until one reports.")
    if options.demo is None:
        lines.append("Stop it with Ctrl-C.")
    return lines


def token_path(paths: VarPaths, name: str) -> Path:
    """The file that holds a bootstrapped token and nothing else."""
    return paths.tokens / f"{name}.token"


def write_token(path: Path, token: str) -> None:
    """Keep a token in a file of mode 0600, never readable by others for a moment."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    fresh.replace(path)


def ensure_tokens(
    plan: Plan,
    database: Database,
    workers: Sequence[LocalWorker],
    say: Callable[[str], None],
) -> Mapping[str, Path]:
    """The file of each bootstrapped token; those the server does not accept are made anew.

    A kept token outlives its database when someone deletes only that.
    """
    owners = BOOTSTRAPPED | {each.service: (OWNER_OF_WORKERS, "worker") for each in workers}
    files = {name: token_path(plan.paths, name) for name in owners}
    missing = [
        name
        for name, (_, role) in owners.items()
        if (kept := read_token(files[name])) is None or not _is_accepted(kept, plan.url, role)
    ]
    if missing:
        for name in missing:
            user, role = owners[name]
            # Of its own machine's participant `up` takes packages, whatever bounds their memory.
            known = role == "submitter"
            made = administer.make_token(database, user, role, known=known)
            write_token(files[name], made.secret)
        made_for = dict.fromkeys(owners[name] for name in missing)
        words = ", ".join(f"{user} ({role})" for user, role in made_for)
        say(f"made tokens for {words}")
    return files


def _is_accepted(token: str, url: str, role: str) -> bool:
    try:
        with ServerClient(url, token) as server:
            return bool(server.get("/me").get("role") == role)
    except (NotSignedIn, NotAllowed):
        return False

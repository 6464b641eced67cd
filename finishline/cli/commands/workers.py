"""`finishline workers` and `finishline queue`: list and hold workers and waiting attempts."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.worker_tables import (
    box_lines,
    embargo_lines,
    held_lines,
    order_text,
    paused_lines,
    queue_table,
    worker_table,
)

workers_app = typer.Typer(help="Workers: list; confirm, pause or resume one (organisers).")
PAGE = 1000
queue_app = typer.Typer(help="Queue: list; pause and resume it (organisers).")

Name = Annotated[str, typer.Argument(help="Name of a worker.")]
Reason = Annotated[
    str, typer.Option("--reason", help="Reason; shown to everyone, kept in the audit log.")
]
WhyResumed = Annotated[str | None, typer.Option("--reason", help="Reason; kept in the audit log.")]


@workers_app.callback(invoke_without_command=True)
def workers(
    ctx: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """List the workers that have reported to the server, or hold one of them."""
    if ctx.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = {"workers": list(_every_worker(server))}
    lines = [worker_table(view["workers"]), *held_lines(view), *box_lines(view)]
    open_screen(as_json=as_json).answer(view, lines)
    return int(ExitCode.OK)


def _every_worker(server: ServerClient) -> Iterator[Any]:
    """Workers of every page."""
    cursor: str | None = None
    while True:
        page = server.get("/workers", limit=PAGE, cursor=cursor)
        yield from page["workers"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return


@workers_app.command()
def pause(
    name: Name, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Pause a worker: it finishes its attempt and leases no other until it is resumed."""
    return _order(name, "pause", reason, url, token, as_json)


@workers_app.command()
def resume(
    name: Name,
    reason: WhyResumed = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Resume a worker that was paused."""
    return _order(name, "resume", reason, url, token, as_json)


def _order(
    name: str, order: str, reason: str | None, url: str, token: str | None, as_json: bool
) -> int:
    body = {} if reason is None else {"reason": reason}
    with ServerClient(url, token) as server:
        view = server.post(f"/workers/{segment(name)}/{order}", body)
    open_screen(as_json=as_json).answer(view, [f"Worker {name} {order_text(order, view)}."])
    return int(ExitCode.OK)


@workers_app.command()
def confirm(
    name: Name,
    reason: WhyResumed = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Confirm a worker's hardware class. Attempts go to confirmed workers only."""
    return _order(name, "confirm", reason, url, token, as_json)


@queue_app.callback(invoke_without_command=True)
def queue(
    ctx: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """List waiting attempts in the order in which they start, or pause the queue."""
    if ctx.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = server.get("/queue")
    open_screen(as_json=as_json).answer(
        view, [*embargo_lines(view), queue_table(view), *paused_lines(view)]
    )
    return int(ExitCode.OK)


@queue_app.command("pause")
def pause_queue(
    reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Pause everything. Running attempts continue."""
    return _order_queue("pause", reason, url, token, as_json, "paused")


@queue_app.command("resume")
def resume_queue(
    reason: WhyResumed = None, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """End the pause of everything."""
    return _order_queue("resume", reason, url, token, as_json, "resumed")


def _order_queue(
    order: str, reason: str | None, url: str, token: str | None, as_json: bool, done: str
) -> int:
    body = {} if reason is None else {"reason": reason}
    with ServerClient(url, token) as server:
        view = server.post(f"/queue/{order}", body)
    open_screen(as_json=as_json).answer(view, [f"Every queue is {done}."])
    return int(ExitCode.OK)

"""`finishline workers` and `finishline queue`: list and hold workers and waiting attempts."""

from typing import Annotated

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.worker_tables import (
    embargo_lines,
    held_lines,
    order_text,
    paused_lines,
    queue_table,
    worker_table,
)

workers_app = typer.Typer(
    help="Workers: list; confirm, pause, drain and resume one, witness one (organisers)."
)
queue_app = typer.Typer(help="What waits: list it; pause and resume it (organisers).")

Name = Annotated[str, typer.Argument(help="Name of a worker.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown to all, kept in the audit log.")]
WhyResumed = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit log.")]
OneClass = Annotated[
    str | None, typer.Argument(help="A hardware class; without one every queue is meant.")
]


@workers_app.callback(invoke_without_command=True)
def workers(
    ctx: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """List the workers that have reported to the server, or hold one of them."""
    if ctx.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = server.get("/workers")
    open_screen(as_json=as_json).answer(view, [worker_table(view["workers"]), *held_lines(view)])
    return int(ExitCode.OK)


@workers_app.command()
def pause(
    name: Name, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Have a worker take nothing until it is resumed; what it is at it finishes."""
    return _order(name, "pause", reason, url, token, as_json)


@workers_app.command()
def drain(
    name: Name, reason: Reason, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Have a worker finish what it is at and end its process; to work again it is resumed."""
    return _order(name, "drain", reason, url, token, as_json)


@workers_app.command()
def resume(
    name: Name,
    reason: WhyResumed = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Let a worker that was paused or drained take work again; one that has ended is started."""
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
    """Let a worker be sent attempts: it is the machine of its hardware class that it says it is."""
    return _order(name, "confirm", reason, url, token, as_json)


@workers_app.command()
def witness(
    submission: Annotated[str, typer.Argument(help="Id of the submission to be witnessed.")],
    reason: WhyResumed = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a token for a worker on the submitter's machine: for one submission, for 24 hours."""
    body = {} if reason is None else {"reason": reason}
    with ServerClient(url, token) as server:
        made = server.post(f"/submissions/{segment(submission)}/witness-token", body)
    lines = [
        f"Token {made['token_id']}, for submission {submission} alone, until {made['expires_at']}:",
        str(made["token"]),
        f"Its worker trains verification {made['verification_id']}. It is no measurement: where "
        "the epochs agree the row says that you witnessed them.",
    ]
    open_screen(as_json=as_json).answer(made, lines)
    return int(ExitCode.OK)


@queue_app.callback(invoke_without_command=True)
def queue(
    ctx: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """List what waits, in the order in which it starts, or pause it."""
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
    reason: Reason,
    hardware_class: OneClass = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Let nothing of a hardware class start, or nothing at all; what runs goes on."""
    return _order_queue("pause", hardware_class, reason, url, token, as_json, "paused")


@queue_app.command("resume")
def resume_queue(
    hardware_class: OneClass = None,
    reason: WhyResumed = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """End the pause of a hardware class, or that of everything."""
    return _order_queue("resume", hardware_class, reason, url, token, as_json, "resumed")


def _order_queue(
    order: str,
    hardware_class: str | None,
    reason: str | None,
    url: str,
    token: str | None,
    as_json: bool,
    done: str,
) -> int:
    body = {"hardware_class": hardware_class} | ({} if reason is None else {"reason": reason})
    with ServerClient(url, token) as server:
        view = server.post(f"/queue/{order}", body)
    what = "Every queue" if hardware_class is None else f"The queue of {hardware_class}"
    open_screen(as_json=as_json).answer(view, [f"{what} is {done}."])
    return int(ExitCode.OK)

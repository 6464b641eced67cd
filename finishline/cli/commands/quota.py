"""`finishline quota`: what one may use and has used; for organisers everybody's."""

from typing import Annotated, Any, Literal

import typer

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.quota_tables import quota_table, set_quota_table
from finishline.cli.screen import open_screen

app = typer.Typer(help="What you may use, and what you used of it.")
SubjectKind = Literal["user", "organisation", "benchmark"]
Kind = Annotated[SubjectKind, typer.Argument(help="Whose quota.")]
Subject = Annotated[str, typer.Argument(help="Name of the user or organisation; benchmark's id.")]


@app.callback(invoke_without_command=True)
def own_quota(
    context: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show what you may submit and have replayed, and what you used of it."""
    if context.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = server.get("/me/quota")
    open_screen(as_json=as_json).answer(view, [quota_table([view, *view["benchmarks"]])])
    return int(ExitCode.OK)


@app.command("list")
def list_quotas(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List the quotas that are unlike the server's own (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.get("/quotas")
    open_screen(as_json=as_json).answer(view, [set_quota_table(view)])
    return int(ExitCode.OK)


@app.command("show")
def show_quota(
    kind: Kind, subject: Subject, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show what somebody, or all on a benchmark, used of what is allowed (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.get(_path(kind, subject))
    _show(view, as_json=as_json)
    return int(ExitCode.OK)


@app.command("set")
def set_quota(
    kind: Kind,
    subject: Subject,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit log.")],
    submissions: Annotated[
        str | None,
        typer.Option("--submissions-per-day", help="A number, unlimited, or default."),
    ] = None,
    gpu_hours: Annotated[
        str | None,
        typer.Option(
            "--gpu-hours-per-month", help="Accelerator hours: a number, unlimited, or default."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Set what a user, each member of an organisation, or all on a benchmark may use."""
    if submissions is None and gpu_hours is None:
        raise CliError(
            "Say what to set: --submissions-per-day or --gpu-hours-per-month.",
            exit_code=ExitCode.USAGE,
        )
    body: dict[str, Any] = {"reason": reason}
    if submissions is not None:
        body["submissions_per_day"] = _amount(submissions, each=1)
    if gpu_hours is not None:
        body["gpu_seconds_per_month"] = _amount(gpu_hours, each=3600)
    with ServerClient(url, token) as server:
        view = server.put(_path(kind, subject), body)
    _show(view, as_json=as_json)
    return int(ExitCode.OK)


def _path(kind: str, subject: str) -> str:
    return f"/quotas/{kind}/{segment(subject)}"


def _show(view: View, *, as_json: bool) -> None:
    open_screen(as_json=as_json).answer(view, [quota_table([view])])


def _amount(text: str, *, each: int) -> int | str:
    """A number of things, or of hours as seconds. Raises CliError."""
    if text in ("unlimited", "default"):
        return text
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise CliError(
            f"{text!r} is no amount; expected a number, unlimited, or default.",
            exit_code=ExitCode.USAGE,
        )
    return round(number * each)

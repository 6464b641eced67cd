"""`finishline withdraw`: take a submission off its board; nothing of it is deleted."""

from typing import Annotated

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen


def withdraw(
    submission: Annotated[str, typer.Argument(help="Id of a submission of yours.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; shown on its page.")],
    undo: Annotated[
        bool, typer.Option("--undo", help="Let it rank again (organisers only).")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Withdraw a submission: it ranks nowhere and stays readable at its address."""
    path = f"/submissions/{segment(submission)}/{'reinstatement' if undo else 'withdrawal'}"
    with ServerClient(url, token) as server:
        view = server.post(path, {"reason": reason})
    told = "ranks again" if undo else "is withdrawn; it stays at its address, unranked"
    open_screen(as_json=as_json).answer(view, [f"Submission {view['id']} {told}."])
    return int(ExitCode.OK)

"""`finishline verify`: ask for a verification, and watch its replay."""

from typing import Annotated

import typer

from cli.client import ServerClient, View, segment
from cli.errors import ExitCode
from cli.options import DEFAULT_URL, Json, Token, Url
from cli.screen import open_screen
from cli.tables import verdict_lines
from cli.watching import verdict_code, watch_verification


def verify(
    submission: Annotated[str, typer.Argument(help="Id of the submission.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the replay and wait for the verdict.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; shown with the verification.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Ask for a submission to be replayed (organisers only).

    With --watch the exit code is 0 when it ends verified and 3 when it ends otherwise.
    """
    screen = open_screen(as_json=as_json)
    with ServerClient(url, token) as server:
        view = request_verification(server, submission, reason=reason)
        if not watch:
            page = f"{server.url}/verifications/{view['id']}"
            screen.answer(view, [f"Verification {view['id']} is {view['state']}: {page}"])
            return int(ExitCode.OK)
        ended = watch_verification(server, view, screen)
    screen.answer(ended, verdict_lines(ended))
    return int(verdict_code(ended))


def request_verification(server: ServerClient, submission: str, *, reason: str | None) -> View:
    """The view of a new verification of a submission. Raises CliError."""
    path = f"/submissions/{segment(submission)}/verifications"
    view: View = server.post(path, {"reason": reason})
    return view

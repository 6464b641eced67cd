"""`finishline decide` and `finishline compare-verifications`: what becomes of a rerun's verdict."""

from typing import Annotated, Literal

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.rerun_views import comparison_lines
from finishline.cli.screen import open_screen


def decide(
    verification: Annotated[str, typer.Argument(help="Id of a verification with a verdict.")],
    decision: Annotated[
        Literal["publish", "keep"],
        typer.Argument(help="Publish its verdict, or keep the one that is published."),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit log.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Decide about the verdict of a rerun (organisers only)."""
    path = f"/verifications/{segment(verification)}/decide"
    with ServerClient(url, token) as server:
        view = server.post(path, {"decision": decision, "reason": reason})
    published = "is published" if decision == "publish" else "is kept back"
    line = f"The verdict of {view['id']}, {view['outcome']}, {published}: {reason}"
    open_screen(as_json=as_json).answer(view, [line])
    return int(ExitCode.OK)


def compare_verifications(
    first: Annotated[str, typer.Argument(help="Id of a verification.")],
    second: Annotated[str, typer.Argument(help="Id of another one of the same submission.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show two verifications of one submission side by side."""
    with ServerClient(url, token) as server:
        view = server.get("/verifications/compare", first=first, second=second)
    open_screen(as_json=as_json).answer(view, comparison_lines(view))
    return int(ExitCode.OK)

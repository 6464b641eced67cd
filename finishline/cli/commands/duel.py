"""`finishline duel`: train two submissions in turn, and say which is faster."""

from typing import Annotated

import typer

from finishline.cli.client import ServerClient, View
from finishline.cli.duel_table import duel_lines
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.watching import watch_verification
from finishline.rules.verification.duel import FEWEST_PAIRS, MOST_PAIRS


def duel(
    challenger: Annotated[str, typer.Argument(help="Id of submission A, the challenger.")],
    holder: Annotated[str, typer.Argument(help="Id of submission B, which holds the record.")],
    pairs: Annotated[
        int, typer.Option("--pairs", min=FEWEST_PAIRS, max=MOST_PAIRS, help="Pairs of runs.")
    ] = 4,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the runs and wait for the verdict.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; shown with the duel.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Have two submissions trained in turn, A B B A, on one worker (organisers only).

    With --watch the exit code is 0 when the duel says who is faster, or that it cannot be told
    apart, and 3 when it ends without saying anything.
    """
    screen = open_screen(as_json=as_json)
    body = {"challenger": challenger, "holder": holder, "pairs": pairs, "reason": reason}
    with ServerClient(url, token) as server:
        view: View = server.post("/duels", body)
        if not watch:
            page = f"{server.url}/verifications/{view['id']}"
            screen.answer(view, [f"Duel {view['id']} is {view['state']}: {page}"])
            return int(ExitCode.OK)
        ended = watch_verification(server, view, screen)
    screen.answer(ended, duel_lines(ended))
    return int(duel_code(ended))


def duel_code(view: View) -> ExitCode:
    """The exit code of a duel that has ended."""
    says_something = view.get("outcome") not in (None, "inconclusive")
    return ExitCode.OK if says_something else ExitCode.NOT_VERIFIED

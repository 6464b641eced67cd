"""`finishline training challenge`: challenge the holder of a record with one's own package."""

from typing import Annotated

import typer
from rich.console import RenderableType

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.entry import Named, Watch, find_entry
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import as_it_is, open_screen
from finishline.cli.submission_tables import challenge_lines, duel_lines
from finishline.cli.watching import watch_verification


def challenge(
    name: Named,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the holder, the cost and the quota alone.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Reason; shown with the challenge.")
    ] = None,
    watch: Watch = True,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Challenge the record of its division with a package of yours, in ten pairs of runs.

    The runs count on your quota. Won, the record moves; lost, ask again after 30 days.

    The exit code is 0 if the challenge is won, 3 if it is not, 1 if it is refused.
    """
    screen = open_screen(as_json=as_json)
    with ServerClient(url, token) as server:
        entry_id = find_entry(server, name)
        path = f"/submissions/{segment(entry_id)}/challenge"
        preview: View = server.get(path)
        lines: list[RenderableType] = challenge_lines(preview)
        if dry_run:
            screen.answer(preview, lines)
            return int(ExitCode.OK if preview["refused"] is None else ExitCode.REFUSED)
        if preview["refused"] is not None:
            raise CliError(str(preview["refused"]), exit_code=ExitCode.REFUSED)
        for line in lines:
            screen.say(as_it_is(str(line)))
        view: View = server.post(path, {"holder": preview["holder"], "reason": reason})
        if not watch:
            page = f"{server.url}/verifications/{view['id']}"
            screen.answer(view, [f"Challenge {view['id']} is {view['state']}: {page}"])
            return int(ExitCode.OK)
        ended = watch_verification(server, view, screen)
    screen.answer(ended, duel_lines(ended))
    won = (ended.get("duel") or {}).get("won") is True
    return int(ExitCode.OK if won else ExitCode.NOT_VERIFIED)

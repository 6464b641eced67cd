"""`finishline benchmark phases`: from when to when a benchmark takes submissions, and how."""

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from cli.client import ServerClient, View, segment
from cli.errors import CliError, ExitCode
from cli.options import DEFAULT_URL, Json, Token, Url
from cli.screen import open_screen
from cli.tables import phases_table

app = typer.Typer(no_args_is_help=True, help="A benchmark's phases: show them, set them.")
NAMES = ("opens_at", "freezes_at", "closes_at", "embargo_until")
NO_DATE = "none"
Moment = str | None


@app.callback()
def _benchmark() -> None:
    """A benchmark's phases: show them, set them."""


@app.command("phases")
def phases(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark.")],
    opens: Annotated[
        Moment,
        typer.Option(
            "--opens", metavar="MOMENT", help="Takes submissions from then on: 2026-12-01T09:00Z."
        ),
    ] = None,
    freezes: Annotated[
        Moment, typer.Option("--freezes", metavar="MOMENT", help="Its rules are frozen from then.")
    ] = None,
    closes: Annotated[
        Moment, typer.Option("--closes", metavar="MOMENT", help="Takes none from then on.")
    ] = None,
    embargo: Annotated[
        Moment, typer.Option("--embargo", metavar="MOMENT", help="Results are hidden until then.")
    ] = None,
    reason: Annotated[Moment, typer.Option("--reason", help="Why; kept in the audit log.")] = None,
    unfreeze: Annotated[
        bool, typer.Option("--unfreeze", help="Allow --freezes to change what is frozen already.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show the phases of a benchmark, or change the dates that are given (organisers only).

    A date that is not given stays as it is; `none` takes it away.
    """
    given = dict(zip(NAMES, (opens, freezes, closes, embargo), strict=True))
    changes = {name: value for name, value in given.items() if value is not None}
    path = f"/benchmarks/{segment(benchmark)}/phases"
    if changes and not reason:
        raise CliError("Give a --reason with the dates.", exit_code=ExitCode.USAGE)
    with ServerClient(url, token) as server:
        found = server.get(path)
        if changes:
            body = {name: found["phases"][name] for name in NAMES} | {
                name: None if value == NO_DATE else value for name, value in changes.items()
            }
            server.post(path, body | {"reason": reason, "unfreeze": unfreeze})
            found = server.get(path)
    open_screen(as_json=as_json).answer(found, _lines(found))
    return int(ExitCode.OK)


def _lines(found: View) -> list[RenderableType]:
    told = Text.assemble((f"{found['benchmark']}  ", "bold"), found["phases"]["sentence"])
    return [told, *([phases_table(found["history"])] if found["history"] else [])]

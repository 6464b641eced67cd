"""`finishline ticket`: get seeds from the server before a training."""

from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.tickets import local_system, name_of_class, write_ticket
from finishline.cli.training import read_settings


def ticket(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark of the server.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (default: ticket-ID.json).")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="Seeds: as the rules ask, up to twice.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter; repeat for more."),
    ] = None,
    division: Annotated[str | None, typer.Option("--division", help="closed or open.")] = None,
    hardware_class: Annotated[
        str | None,
        typer.Option("--hardware-class", help="What will train (default: this machine)."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", envvar="FINISHLINE_DEVICE", help="cpu or cuda:0."),
    ] = None,
    ticket_id: Annotated[
        str | None, typer.Option("--id", help="Write the file of an open ticket of yours again.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Get a ticket: seeds for a training, good for 30 days and one submission.

    `finishline run BENCHMARK --ticket FILE` then trains without a network.
    """
    with ServerClient(url, token) as server:
        if ticket_id is not None:
            got = server.get(f"/tickets/{segment(ticket_id)}")
        else:
            name = hardware_class or name_of_class(server, local_system(device))
            wanted = {
                "benchmark": benchmark,
                "division": division,
                "settings": read_settings(settings or []),
                "hardware_class": name,
                "runs": runs,
            }
            got = server.post("/tickets", wanted)
    file = out or Path(f"ticket-{got['id']}.json")
    write_ticket(file, got)
    said = f"Wrote {file}. Next: finishline run {got['benchmark']} --ticket {file}"
    open_screen(as_json=as_json).answer({**got, "file": str(file)}, [said])
    return int(ExitCode.OK)

"""`finishline prices`: the dated price book: list it, add to it, import a file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from finishline.cli.client import ServerClient
from finishline.cli.errors import ExitCode, refusal
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.organiser_tables import price_table
from finishline.cli.price_files import read_prices
from finishline.cli.screen import open_screen
from finishline.rules.benchmarks.prices import Price
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

app = typer.Typer(no_args_is_help=True, help="The price book: list, add, import.")
Name = Annotated[str, typer.Argument(help="As the provider's price list calls it.")]
Filter = str | None


@app.command("list")
def list_prices(
    provider: Annotated[Filter, typer.Option("--provider", help="Of this provider.")] = None,
    instance: Annotated[Filter, typer.Option("--instance", help="Of this instance.")] = None,
    region: Annotated[Filter, typer.Option("--region", help="Of this region.")] = None,
    on: Annotated[
        Filter, typer.Option("--on", metavar="DAY", help="Only what holds on a day: 2026-11-21.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """List prices, the latest of each instance first."""
    with ServerClient(url) as server:
        view = server.get("/prices", provider=provider, instance=instance, region=region, on=on)
    open_screen(as_json=as_json).answer(view, [price_table(view["prices"])])
    return int(ExitCode.OK)


@app.command("add")
def add_price(
    provider: Name,
    instance: Name,
    region: Name,
    usd_per_hour: Annotated[
        float, typer.Argument(metavar="USD_PER_HOUR", help="US dollars for an hour of one.")
    ],
    effective_on: Annotated[
        str, typer.Option("--from", metavar="DAY", help="The day it holds from: 2026-11-21.")
    ],
    source_url: Annotated[str, typer.Option("--source", help="Address of the page that says so.")],
    pricing: Annotated[
        Literal["on_demand", "spot"], typer.Option("--pricing", help="Spot never ranks.")
    ] = "on_demand",
    note: Annotated[Filter, typer.Option("--note", help="A remark; kept with it.")] = None,
    supersedes: Annotated[
        int | None, typer.Option("--supersedes", min=1, help="Number of a price that was wrong.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add a price (organisers only). Nothing is ever changed: correct it by another one."""
    body = {
        "provider": provider, "instance": instance, "region": region, "pricing": pricing,
        "usd_per_hour": usd_per_hour, "effective_on": effective_on, "source_url": source_url,
        "note": note, "supersedes": supersedes,
    }  # fmt: skip
    with ServerClient(url, token) as server:
        view = server.post("/prices", body)
    open_screen(as_json=as_json).answer(view, [f"Price {view['id']} is in the book."])
    return int(ExitCode.OK)


@app.command("import")
def import_prices(
    path: Annotated[Path, typer.Argument(help="CSV with a header, or TOML (\\[\\[prices]]).")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add every price of a file, or none (organisers only). What is there already is left out."""
    try:
        prices = read_prices(path)
    except RuleError as error:
        raise refusal(error) from error
    with ServerClient(url, token) as server:
        view = server.post("/prices/import", {"prices": [_body(price) for price in prices]})
    there = count_text(view["already_there"], "was", "were")
    told = f"{count_text(len(view['added']), 'price')} added, {there} there already."
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


def _body(price: Price) -> dict[str, object]:
    return asdict(price) | {"effective_on": price.effective_on.isoformat()}

"""`finishline quota` and `prices`: quotas of users, and prices of instances."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.cli.lists_in_files import read_prices
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.people_tables import price_table, quota_table, set_quota_table
from finishline.cli.screen import open_screen
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

HOURS_PER_YEAR = 8760

quota_app = typer.Typer(help="Your quotas and their use.")
User = Annotated[str, typer.Argument(help="Name of the user.")]


@quota_app.callback(invoke_without_command=True)
def own_quota(
    context: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show your quotas for uploads and replays, and their use."""
    if context.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = server.get("/me/quota")
    open_screen(as_json=as_json).answer(view, [quota_table(view)])
    return int(ExitCode.OK)


@quota_app.command("list")
def list_quotas(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List the quotas that differ from the defaults (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.get("/quotas")
    open_screen(as_json=as_json).answer(view, [set_quota_table(view)])
    return int(ExitCode.OK)


@quota_app.command("show")
def show_quota(
    user: User, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show the quotas of a user and their use (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.get(f"/quotas/{segment(user)}")
    open_screen(as_json=as_json).answer(view, [quota_table(view)])
    return int(ExitCode.OK)


@quota_app.command("set")
def set_quota(
    user: User,
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
    """Set the quotas of a user (organisers only)."""
    body: dict[str, Any] = {"reason": reason}
    if submissions is not None:
        body["submissions_per_day"] = _amount(submissions, each=1)
    if gpu_hours is not None:
        body["gpu_seconds_per_month"] = _amount(gpu_hours, each=3600)
    with ServerClient(url, token) as server:
        view = server.put(f"/quotas/{segment(user)}", body)
    open_screen(as_json=as_json).answer(view, [quota_table(view)])
    return int(ExitCode.OK)


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
            f"Invalid amount {text!r}. Expected a number, unlimited or default.",
            exit_code=ExitCode.USAGE,
        )
    return round(number * each)


price_app = typer.Typer(no_args_is_help=True, help="Prices: derive the price of an owned system.")
prices_app = typer.Typer(no_args_is_help=True, help="The price book: list, add, import.")
Name = Annotated[str, typer.Argument(help="Name in the provider's price list.")]
Filter = str | None


@prices_app.command("list")
def list_prices(
    provider: Annotated[Filter, typer.Option("--provider", help="Only this provider.")] = None,
    instance: Annotated[Filter, typer.Option("--instance", help="Only this instance.")] = None,
    region: Annotated[Filter, typer.Option("--region", help="Only this region.")] = None,
    on: Annotated[
        Filter,
        typer.Option("--on", metavar="DAY", help="Only prices valid on a day, such as 2026-11-21."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List prices, the latest of each instance first."""
    with ServerClient(url, token) as server:
        view = server.get("/prices", provider=provider, instance=instance, region=region, on=on)
    open_screen(as_json=as_json).answer(view, [price_table(view["prices"])])
    return int(ExitCode.OK)


@prices_app.command("add")
def add_price(
    provider: Name,
    instance: Name,
    region: Name,
    usd_per_hour: Annotated[float, typer.Argument(help="US dollars per hour of one instance.")],
    *,
    effective_on: Annotated[
        str,
        typer.Option("--from", metavar="DAY", help="First day of validity, such as 2026-11-21."),
    ],
    source_url: Annotated[
        str, typer.Option("--source", help="Address of the provider's price page.")
    ],
    pricing: Annotated[
        Literal["on_demand", "spot"], typer.Option("--pricing", help="Spot prices never rank.")
    ] = "on_demand",
    note: Annotated[Filter, typer.Option("--note", help="Note, shown with the price.")] = None,
    supersedes: Annotated[
        int | None,
        typer.Option("--supersedes", min=1, help="Id of the wrong price that this one replaces."),
    ] = None,
    hardware_class: Annotated[
        Filter,
        typer.Option("--hardware-class", help="Class of this instance, whose rows it may rank."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add a price (organisers only). Prices are never edited: --supersedes corrects one."""
    body = {
        "provider": provider, "instance": instance, "region": region, "pricing": pricing,
        "usd_per_hour": usd_per_hour, "effective_on": effective_on, "source_url": source_url,
        "note": note, "supersedes": supersedes, "hardware_class": hardware_class,
    }  # fmt: skip
    with ServerClient(url, token) as server:
        view = server.post("/prices", body)
    told = f"Price {view['id']} added: {view['usd_per_hour']:.6g} USD per hour."
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


@prices_app.command("import")
def import_prices(
    path: Annotated[Path, typer.Argument(help="CSV with a header, or TOML (\\[\\[prices]]).")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add all prices of a file, or none if one is invalid (organisers only); skip known ones."""
    try:
        prices = [price.model_dump(mode="json") for price in read_prices(path)]
    except RuleError as error:
        raise refusal(error) from error
    with ServerClient(url, token) as server:
        view = server.post("/prices/import", {"prices": prices})
    added = count_text(len(view["added"]), "price")
    told = f"{added} added, {view['already_there']} skipped as already known."
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


@price_app.command()
def owned(
    *,
    purchase_usd: Annotated[
        float, typer.Option("--purchase-usd", min=0, max=1e10, help="US dollars of the purchase.")
    ],
    years: Annotated[
        float, typer.Option("--years", min=0.01, max=100, help="Years until it is written off.")
    ],
    utilisation: Annotated[
        float,
        typer.Option("--utilisation", min=0.001, max=1, help="Fraction of the hours it works."),
    ],
    watts: Annotated[
        float, typer.Option("--watts", min=0, max=1e8, help="Power of the system at work.")
    ],
    pue: Annotated[
        float, typer.Option("--pue", min=1, max=10, help="Building power / system power.")
    ],
    usd_per_kwh: Annotated[
        float, typer.Option("--usd-per-kwh", min=0, max=1000, help="US dollars per kWh.")
    ],
    as_json: Json = False,
) -> int:
    """Print the price per hour of a system that you own, and its formula. Nothing is stored."""
    hours = years * HOURS_PER_YEAR * utilisation
    usd_per_hour = purchase_usd / hours + watts / 1000 * pue * usd_per_kwh
    formula = (
        f"{purchase_usd:.12g} / ({years:.12g} * {HOURS_PER_YEAR} * {utilisation:.12g})"
        f" + {watts:.12g} / 1000 * {pue:.12g} * {usd_per_kwh:.12g}"
    )
    open_screen(as_json=as_json).answer(
        {"usd_per_hour": usd_per_hour, "formula": formula},
        [f"{usd_per_hour:.6g} USD per hour = {formula}"],
    )
    return int(ExitCode.OK)

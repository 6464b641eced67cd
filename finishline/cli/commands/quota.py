"""`finishline quota` and `prices`: quotas of users, and prices of instances."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.people_tables import price_table, quota_table, set_quota_table
from finishline.cli.price_files import read_prices
from finishline.cli.screen import open_screen
from finishline.rules.benchmarks.prices import Price
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

quota_app = typer.Typer(help="Your quotas and their use.")
SubjectKind = Literal["user", "organisation", "benchmark"]
Kind = Annotated[SubjectKind, typer.Argument(help="Kind of subject.")]
Subject = Annotated[
    str, typer.Argument(help="Name of the user or organisation, or the benchmark's id.")
]


@quota_app.callback(invoke_without_command=True)
def own_quota(
    context: typer.Context, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show your quotas for uploads and replays, and their use."""
    if context.invoked_subcommand is not None:
        return int(ExitCode.OK)
    with ServerClient(url, token) as server:
        view = server.get("/me/quota")
    open_screen(as_json=as_json).answer(view, [quota_table([view, *view["benchmarks"]])])
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
    kind: Kind, subject: Subject, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Show the quotas of a user, an organisation or a benchmark (organisers only)."""
    with ServerClient(url, token) as server:
        view = server.get(_path(kind, subject))
    _show(view, as_json=as_json)
    return int(ExitCode.OK)


@quota_app.command("set")
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
    """Set the quotas of a user, of each member of an organisation, or of a benchmark."""
    if submissions is None and gpu_hours is None:
        raise CliError(
            "Nothing to set. Pass --submissions-per-day or --gpu-hours-per-month.",
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
            f"Invalid amount {text!r}. Expected a number, unlimited or default.",
            exit_code=ExitCode.USAGE,
        )
    return round(number * each)


prices_app = typer.Typer(no_args_is_help=True, help="The price book: list, add, import.")
Name = Annotated[str, typer.Argument(help="Name in the provider's price list.")]
Filter = str | None
Number = float | None


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
    *,
    usd_per_hour: Annotated[
        float | None,
        typer.Argument(
            metavar="[USD_PER_HOUR]", help="US dollars per hour of one instance; none with --owned."
        ),
    ] = None,
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
    is_owned: Annotated[
        bool, typer.Option("--owned", help="A system of your own, by the six parts of its price.")
    ] = False,
    purchase_usd: Annotated[
        Number, typer.Option("--purchase-usd", help="US dollars it was bought for.")
    ] = None,
    years: Annotated[
        Number, typer.Option("--years", help="Years over which they are written off.")
    ] = None,
    utilisation: Annotated[
        Number, typer.Option("--utilisation", help="Fraction of its hours in which it works.")
    ] = None,
    watts: Annotated[Number, typer.Option("--watts", help="Its power at work.")] = None,
    pue: Annotated[
        Number, typer.Option("--pue", help="Power of the building by that of the system.")
    ] = None,
    usd_per_kwh: Annotated[
        Number, typer.Option("--usd-per-kwh", help="US dollars per kWh.")
    ] = None,
    grams_co2e_per_kwh: Annotated[
        Number, typer.Option("--grams-co2e-per-kwh", help="Grams of CO2e per kWh.")
    ] = None,
    note: Annotated[Filter, typer.Option("--note", help="Note, shown with the price.")] = None,
    supersedes: Annotated[
        int | None,
        typer.Option("--supersedes", min=1, help="Id of the wrong price that this one replaces."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add a price (organisers only). Prices are never edited: --supersedes corrects one.

    The hour of a system of your own is derived: purchase / (years * 8760 * utilisation) + watts /
    1000 * pue * USD per kWh.
    """
    parts = {
        "purchase_usd": purchase_usd, "years": years, "utilisation": utilisation, "watts": watts,
        "pue": pue, "usd_per_kwh": usd_per_kwh,
    }  # fmt: skip
    ownership = _ownership(parts, grams_co2e_per_kwh, usd_per_hour) if is_owned else None
    if ownership is None and usd_per_hour is None:
        raise CliError(
            "no price: expected USD_PER_HOUR after the region, or --owned with its parts",
            exit_code=ExitCode.USAGE,
        )
    body: dict[str, object] = {
        "provider": provider, "instance": instance, "region": region,
        "pricing": "owned" if is_owned else pricing,
        "usd_per_hour": usd_per_hour, "effective_on": effective_on, "source_url": source_url,
        "note": note, "supersedes": supersedes,
    }  # fmt: skip
    if ownership is not None:
        body["ownership"] = ownership
    with ServerClient(url, token) as server:
        view = server.post("/prices", body)
    told = f"Price {view['id']} added: {view['usd_per_hour']:.6g} USD per hour."
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


def _ownership(
    parts: dict[str, Number], grams_co2e_per_kwh: Number, usd_per_hour: Number
) -> dict[str, Number]:
    """The parts of an owned system's price. Raises CliError naming those that are missing."""
    missing = [f"--{name.replace('_', '-')}" for name, value in parts.items() if value is None]
    if missing:
        raise CliError(f"--owned needs {', '.join(missing)} too", exit_code=ExitCode.USAGE)
    if usd_per_hour is not None:
        raise CliError(
            "USD_PER_HOUR beside --owned: expected none, it is derived", exit_code=ExitCode.USAGE
        )
    return parts | {"grams_co2e_per_kwh": grams_co2e_per_kwh}


@prices_app.command("import")
def import_prices(
    path: Annotated[Path, typer.Argument(help="CSV with a header, or TOML (\\[\\[prices]]).")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add all prices of a file, or none if one is invalid (organisers only); skip known ones."""
    try:
        prices = read_prices(path)
    except RuleError as error:
        raise refusal(error) from error
    with ServerClient(url, token) as server:
        view = server.post("/prices/import", {"prices": [_body(price) for price in prices]})
    added = count_text(len(view["added"]), "price")
    told = f"{added} added, {view['already_there']} skipped as already known."
    open_screen(as_json=as_json).answer(view, [told])
    return int(ExitCode.OK)


def _body(price: Price) -> dict[str, object]:
    body = asdict(price) | {"effective_on": price.effective_on.isoformat()}
    if price.ownership is None:
        del body["ownership"]
    return body

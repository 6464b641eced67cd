"""`finishline admin user` and `finishline admin organisation`: who has an account, and where."""

from typing import Annotated, Any

import typer

from finishline.cli.account_tables import organisation_table, user_table
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.admin_tokens import Role
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen

users = typer.Typer(no_args_is_help=True, help="Users: list, add, set, disable, enable.")
organisations = typer.Typer(no_args_is_help=True, help="Organisations: list, add.")
Name = Annotated[str, typer.Argument(help="Name of the user.")]
Organisation = Annotated[str | None, typer.Option("--organisation", help="Where they belong.")]
Email = Annotated[str | None, typer.Option("--email", help="Where notices to them go.")]


@users.command("list")
def list_users(
    search: Annotated[
        str | None, typer.Option("--q", help="Only those whose name or e-mail holds this.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List users by name."""
    found: list[View] = []
    after = None
    with ServerClient(url, token) as server:
        while True:
            page = server.get("/users", q=search, after=after)
            found += page["users"]
            after = page.get("next_after")
            if after is None:
                break
    open_screen(as_json=as_json).answer({"users": found}, [user_table(found)])
    return int(ExitCode.OK)


@users.command("add")
def add_user(
    name: Name,
    role: Annotated[Role, typer.Option("--role", help="The highest role of their tokens.")] = (
        "submitter"
    ),
    organisation: Organisation = None,
    email: Email = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add a user. Their tokens are made apart: `finishline admin token make`."""
    body = {"name": name, "role": role, "organisation": organisation, "email": email}
    with ServerClient(url, token) as server:
        view = server.post("/users", body)
    open_screen(as_json=as_json).answer(view, [user_table([view])])
    return int(ExitCode.OK)


@users.command("set")
def set_user(
    name: Name,
    role: Annotated[
        Role | None, typer.Option("--role", help="The highest role of their tokens.")
    ] = None,
    organisation: Organisation = None,
    email: Email = None,
    no_organisation: Annotated[
        bool, typer.Option("--no-organisation", help="They belong to none.")
    ] = False,
    no_email: Annotated[
        bool, typer.Option("--no-email", help="No notices go to them by mail.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Change a user's role, organisation or e-mail. What is left out stays."""
    given = {"role": role, "organisation": organisation, "email": email}
    change: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    change |= {"organisation": None} if no_organisation else {}
    change |= {"email": None} if no_email else {}
    if not change:
        raise CliError(
            "Nothing to change: name --role, --organisation or --email.", exit_code=ExitCode.USAGE
        )
    return _change(name, change, url=url, token=token, as_json=as_json)


@users.command("disable")
def disable_user(
    name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Refuse a user's tokens and end their sessions; what they submitted stays."""
    return _change(name, {"disabled": True}, url=url, token=token, as_json=as_json)


@users.command("enable")
def enable_user(
    name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Accept a user's tokens again, as far as they were not revoked."""
    return _change(name, {"disabled": False}, url=url, token=token, as_json=as_json)


def _change(
    name: str, change: dict[str, Any], *, url: str, token: str | None, as_json: bool
) -> int:
    with ServerClient(url, token) as server:
        view = server.patch(f"/users/{segment(name)}", change)
    open_screen(as_json=as_json).answer(view, [user_table([view])])
    return int(ExitCode.OK)


@organisations.command("list")
def list_organisations(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List organisations by name."""
    with ServerClient(url, token) as server:
        view = server.get("/organisations")
    open_screen(as_json=as_json).answer(view, [organisation_table(view["organisations"])])
    return int(ExitCode.OK)


@organisations.command("add")
def add_organisation(
    name: Annotated[str, typer.Argument(help="Name of the organisation.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add an organisation, for users to belong to."""
    with ServerClient(url, token) as server:
        view = server.post("/organisations", {"name": name})
    open_screen(as_json=as_json).answer(view, [f"{name} is added."])
    return int(ExitCode.OK)

"""`finishline admin`: users, organisations and tokens, for organisers."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.quota import price_app
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.lists_in_files import csv_line, read_class
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.people_tables import (
    invitation_table,
    organisation_table,
    token_table,
    user_table,
)
from finishline.cli.screen import Screen, as_it_is, open_screen
from finishline.rules.roles import Role
from finishline.rules.text import count_text

tokens_app = typer.Typer(no_args_is_help=True, help="Tokens of others: list, make, revoke.")
invitations = typer.Typer(no_args_is_help=True, help="Links by which people join: list, revoke.")
Label = Annotated[str | None, typer.Option("--label", help="Purpose of the token.")]
Days = Annotated[float | None, typer.Option("--days", min=0.001, help="Days until it expires.")]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]


@tokens_app.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option("--user", help="Only tokens of this user.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List the tokens you may revoke, without their secrets."""
    with ServerClient(url, token) as server:
        view = server.get("/tokens", user=user)
    open_screen(as_json=as_json).answer(view, [token_table(view["tokens"])])
    return int(ExitCode.OK)


@tokens_app.command("make")
def make_token(
    user: Annotated[str, typer.Argument(help="Name of the user.")],
    role: Annotated[Role, typer.Option("--role", help="Role of the token.")] = "submitter",
    label: Label = None,
    days: Days = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a token for a user. It is shown only once."""
    body = given(user=user, role=role, label=label, expires_in_days=days)
    with ServerClient(url, token) as server:
        view = server.post("/tokens", body)
    show_secret(view, as_json=as_json)
    return int(ExitCode.OK)


@tokens_app.command("revoke")
def revoke_token(
    token_id: TokenId, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Revoke a token and every token made with it."""
    with ServerClient(url, token) as server:
        view = server.delete(f"/tokens/{segment(token_id)}")
    show_revoked(token_id, view, as_json=as_json)
    return int(ExitCode.OK)


def given(**options: object) -> dict[str, object]:
    """The given options, without those left out."""
    return {name: value for name, value in options.items() if value}


def show_secret(view: View, *, as_json: bool) -> None:
    """A token that was made, and that it has to be kept."""
    lines = [str(view.get("token")), f"Store it now: it is not shown again (id {view.get('id')})."]
    open_screen(as_json=as_json).answer(view, lines)


def show_revoked(token_id: str, view: View, *, as_json: bool) -> None:
    """Say which tokens ended together."""
    ended = [str(each) for each in view["revoked"]]
    lines = [f"Token {token_id} {'is revoked' if token_id in ended else 'had already ended'}."]
    if others := [each for each in ended if each != token_id]:
        told = count_text(len(others), "token")
        lines.append(f"Also revoked: {told} made with it: {', '.join(others)}.")
    open_screen(as_json=as_json).answer(view, lines)


users = typer.Typer(
    no_args_is_help=True, help="Users: list, add, set, disable, enable, approve, erase."
)
organisations = typer.Typer(no_args_is_help=True, help="Organisations: list, add.")
Name = Annotated[str, typer.Argument(help="Name of the user.")]
Organisation = Annotated[
    str | None, typer.Option("--organisation", help="Organisation of the user.")
]
Email = Annotated[str | None, typer.Option("--email", help="E-mail address for notices.")]
DisplayName = Annotated[
    str | None, typer.Option("--display-name", help="Name that readers see in place of the name.")
]


@users.command("list")
def list_users(
    search: Annotated[
        str | None, typer.Option("--q", help="Only users with this text in their name or e-mail.")
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
    role: Annotated[
        Role, typer.Option("--role", help="Highest role that their tokens may have.")
    ] = ("submitter"),
    organisation: Organisation = None,
    email: Email = None,
    display_name: DisplayName = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Add a user. Make their tokens with `finishline admin token make`."""
    body: dict[str, object] = {
        "name": name,
        "role": role,
        "organisation": organisation,
        "email": email,
        **given(display_name=display_name),
    }
    with ServerClient(url, token) as server:
        view = server.post("/users", body)
    lines: list[RenderableType] = [user_table([view])]
    if role == "submitter":
        lines += [
            "Workers without a memory cgroup (`finishline workers` names them) train none of their "
            "packages until an organiser who knows them approves:",
            as_it_is(f"finishline admin user approve {quote(name)}"),
        ]
    open_screen(as_json=as_json).answer(view, lines)
    return int(ExitCode.OK)


@users.command("set")
def set_user(
    name: Name,
    role: Annotated[
        Role | None, typer.Option("--role", help="Highest role that their tokens may have.")
    ] = None,
    organisation: Organisation = None,
    email: Email = None,
    display_name: DisplayName = None,
    no_organisation: Annotated[
        bool, typer.Option("--no-organisation", help="Remove the user from the organisation.")
    ] = False,
    no_email: Annotated[
        bool, typer.Option("--no-email", help="Remove the e-mail address.")
    ] = False,
    no_display_name: Annotated[
        bool, typer.Option("--no-display-name", help="Show the account's name again.")
    ] = False,
    disabled: Annotated[
        bool | None,
        typer.Option(
            "--disable/--enable", help="Refuse or accept their tokens. Their submissions stay."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Change a user's role, organisation, e-mail, display name or access. Omitted options stay."""
    asked: dict[str, Any] = {"role": role, "organisation": organisation, "email": email}
    asked |= {"display_name": display_name, "disabled": disabled}
    change = {key: value for key, value in asked.items() if value is not None}
    change |= {"organisation": None} if no_organisation else {}
    change |= {"email": None} if no_email else {}
    change |= {"display_name": None} if no_display_name else {}
    if not change:
        raise CliError(
            "Nothing to change. Pass --role, --organisation, --email, --display-name or --disable.",
            exit_code=ExitCode.USAGE,
        )
    with ServerClient(url, token) as server:
        view = server.patch(f"/users/{segment(name)}", change)
    open_screen(as_json=as_json).answer(view, [user_table([view])])
    return int(ExitCode.OK)


@users.command("approve")
def approve_user(
    name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Let workers without a memory cgroup train a user's packages (organisers).

    Such a box bounds less of its host's memory: approve only participants whom you know.
    """
    return _set_known(name, known=True, url=url, token=token, as_json=as_json)


@users.command("disapprove")
def disapprove_user(
    name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Send a user's packages only to workers with a memory cgroup (organisers)."""
    return _set_known(name, known=False, url=url, token=token, as_json=as_json)


@users.command("erase")
def erase_user(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Nothing brings the name back.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Replace a person's name by former-17 wherever it stands, and end their access.

    Their submissions stay under that name.
    """
    if not yes:
        raise CliError(f"Nothing was erased. To erase {name}, add --yes.", exit_code=ExitCode.USAGE)
    with ServerClient(url, token) as server:
        view = server.post(f"/users/{segment(name)}/erasure", {"name": name})
    open_screen(as_json=as_json).answer(view, [f"{name} is {view['name']} from now on."])
    return int(ExitCode.OK)


def _set_known(name: str, *, known: bool, url: str, token: str | None, as_json: bool) -> int:
    with ServerClient(url, token) as server:
        view = server.put(f"/users/{segment(name)}/known", {"known": known})
    line = f"{name} is {'known' if known else 'not known'} to the organisers."
    open_screen(as_json=as_json).answer(view, [line])
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
    """Add an organisation."""
    with ServerClient(url, token) as server:
        view = server.post("/organisations", {"name": name})
    open_screen(as_json=as_json).answer(view, [f"Organisation {name} added."])
    return int(ExitCode.OK)


def invite(
    role: Annotated[Role, typer.Option("--role", help="Role of those who join.")] = "submitter",
    uses: Annotated[int, typer.Option("--uses", min=1, help="How many people may join.")] = 1,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Last day (default: in 7 days).")
    ] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Domain of their mail addresses.")
    ] = None,
    organisation: Annotated[
        str | None, typer.Option("--organisation", help="Organisation to join.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name proposed to a single person.")
    ] = None,
    approve: Annotated[
        bool,
        typer.Option("--approve", help="Approve whoever joins, as `admin user approve` does."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="CSV with name and email: a link for each."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a link by which one person joins, or a class (organisers). It is shown only once.

    With --from each person of a list gets a link of their own, as CSV to send by mail merge.
    """
    body = given(role=role, last_day=until, mail_domain=domain, organisation=organisation)
    if approve:
        body["known"] = True
    screen = open_screen(as_json=as_json)
    if file is not None:
        if name is not None:
            raise CliError("Give --from or --name, not both.", exit_code=ExitCode.USAGE)
        return _invite_class(file, body, url=url, token=token, screen=screen)
    with ServerClient(url, token) as server:
        view = server.post("/invitations", body | given(uses=uses, name=name))
    _warn(view, screen)
    screen.answer(view, [as_it_is(view["link"])])
    return int(ExitCode.OK)


def _invite_class(
    file: Path, body: dict[str, object], *, url: str, token: str | None, screen: Screen
) -> int:
    """Make a link for each person of a list; each is written at once, so that none is lost."""
    domain = body.get("mail_domain")
    students, notes = read_class(file, domain=str(domain) if domain else None)
    made: list[View] = []
    if not screen.as_json:
        for note in notes:
            typer.echo(f"{file.name} {note}: left out.", err=True)
        typer.echo(csv_line("name", "email", "link"))
    with ServerClient(url, token) as server:
        for each in students:
            view = server.post("/invitations", body | given(name=each.name))
            if not made:
                _warn(view, screen)
            made.append({"name": each.name, "email": each.email, "link": view["link"]})
            if not screen.as_json:
                typer.echo(csv_line(each.name, each.email, view["link"]))
    if screen.as_json:
        screen.answer({"invitations": made, "left_out": notes}, [])
    return int(ExitCode.OK)


def _warn(view: View, screen: Screen) -> None:
    """Pass the server's remark on a link on, beside the output that is kept in a file."""
    if view.get("remark") and not screen.as_json:
        typer.echo(f"warning: {view['remark']}", err=True)


@invitations.command("list")
def list_invitations(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List the links that you made; an admin sees all."""
    with ServerClient(url, token) as server:
        view = server.get("/invitations")
    open_screen(as_json=as_json).answer(view, [invitation_table(view["invitations"])])
    return int(ExitCode.OK)


@invitations.command("revoke")
def revoke_invitation(
    invitation_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the link.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Revoke a link. Those who joined with it stay."""
    with ServerClient(url, token) as server:
        view = server.delete(f"/invitations/{segment(invitation_id)}")
    open_screen(as_json=as_json).answer(view, [f"Link {view['id']} is revoked."])
    return int(ExitCode.OK)


app = typer.Typer(no_args_is_help=True, help="Users, organisations and tokens (admins).")
app.add_typer(invitations, name="invitation")
app.add_typer(users, name="user")
app.add_typer(organisations, name="organisation")
app.add_typer(tokens_app, name="token")
app.add_typer(price_app, name="price")

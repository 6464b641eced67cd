"""`finishline account`: your account on a server, and your own tokens."""

from typing import Annotated

import typer

from finishline.cli.client import ServerClient, segment
from finishline.cli.commands.admin import (
    Days,
    Label,
    TokenId,
    given,
    show_revoked,
    show_secret,
)
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.people_tables import account_lines, token_table
from finishline.cli.screen import open_screen
from finishline.rules.roles import Role

app = typer.Typer(no_args_is_help=True, help="Your account and your own tokens.")


@app.command("show")
def show_account(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """Show the token's user, role and expiry."""
    with ServerClient(url, token) as server:
        view = server.get("/me")
    open_screen(as_json=as_json).answer(view, account_lines(view))
    return int(ExitCode.OK)


@app.command("name")
def change_display_name(
    display_name: Annotated[
        str, typer.Argument(metavar="NAME", help='Name that readers see; "" for your account\'s.')
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Change the name that readers see beside your results."""
    with ServerClient(url, token) as server:
        view = server.patch("/me", {"display_name": display_name or None})
    open_screen(as_json=as_json).answer(view, account_lines(view))
    return int(ExitCode.OK)


@app.command("tokens")
def list_own_tokens(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List your tokens, without their secrets."""
    with ServerClient(url, token) as server:
        view = server.get("/me/tokens")
    open_screen(as_json=as_json).answer(view, [token_table(view["tokens"])])
    return int(ExitCode.OK)


@app.command("make")
def make_own_token(
    role: Annotated[
        Role | None,
        typer.Option("--role", help="Role of the new token: at most that of the one in use."),
    ] = None,
    label: Label = None,
    days: Days = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a token for yourself, with at most your token's rights. It is shown only once."""
    body = given(role=role, label=label, expires_in_days=days)
    with ServerClient(url, token) as server:
        view = server.post("/me/tokens", body)
    show_secret(view, as_json=as_json)
    return int(ExitCode.OK)


@app.command("revoke")
def revoke_own_token(
    token_id: TokenId, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Revoke one of your tokens and every token made with it."""
    with ServerClient(url, token) as server:
        view = server.delete(f"/me/tokens/{segment(token_id)}")
    show_revoked(token_id, view, as_json=as_json)
    return int(ExitCode.OK)

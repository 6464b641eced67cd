"""`finishline admin token`, or `finishline token`: the tokens of others."""

from typing import Annotated, Literal

import typer

from finishline.cli.account_tables import token_table
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.rules.text import count_text

app = typer.Typer(no_args_is_help=True, help="Tokens of others: list, make, rotate, revoke.")
Role = Literal["submitter", "organiser", "admin", "worker"]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        help="read, submit, organise, administer, work or tokens; once for each, all if left out.",
    ),
]
Label = Annotated[str | None, typer.Option("--label", help="What it is for.")]
Days = Annotated[float | None, typer.Option("--days", min=0.001, help="Days until it expires.")]
Overlap = Annotated[
    float,
    typer.Option("--overlap-hours", min=0, max=168, help="How long the old one still works."),
]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]


@app.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option("--user", help="Only of this user.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """List the tokens you may revoke, without their secrets."""
    with ServerClient(url, token) as server:
        view = server.get("/tokens", user=user)
    open_screen(as_json=as_json).answer(view, [token_table(view["tokens"])])
    return int(ExitCode.OK)


@app.command("make")
def make_token(
    user: Annotated[str, typer.Argument(help="Name of the user.")],
    role: Annotated[Role, typer.Option("--role", help="Role of the token.")] = "submitter",
    scopes: Scopes = None,
    label: Label = None,
    days: Days = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a token for somebody. It is shown this once."""
    body = given(user=user, role=role, label=label, scopes=scopes, expires_in_days=days)
    with ServerClient(url, token) as server:
        view = server.post("/tokens", body)
    show_secret(view, as_json=as_json)
    return int(ExitCode.OK)


# As it is called since there are tokens.
app.command("create", hidden=True)(make_token)


@app.command("rotate")
def rotate_token(
    token_id: TokenId,
    overlap_hours: Overlap = 0.0,
    days: Days = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Have a fresh token take over from one. It is shown this once."""
    with ServerClient(url, token) as server:
        view = rotate(server, f"/tokens/{segment(token_id)}", overlap_hours, days)
    show_secret(view, as_json=as_json)
    return int(ExitCode.OK)


@app.command("revoke")
def revoke_token(
    token_id: TokenId, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False
) -> int:
    """Revoke a token and all that descend from it: made with it, or rotated from it."""
    with ServerClient(url, token) as server:
        view = server.delete(f"/tokens/{segment(token_id)}")
    show_revoked(token_id, view, as_json=as_json)
    return int(ExitCode.OK)


def rotate(server: ServerClient, path: str, overlap_hours: float, days: float | None) -> View:
    """The token that takes over from the one at a path."""
    body = given(expires_in_days=days) | {"overlap_hours": overlap_hours}
    view: View = server.post(f"{path}/rotate", body)
    return view


def given(**options: object) -> dict[str, object]:
    """What was asked for; no option that was left out."""
    return {name: value for name, value in options.items() if value}


def show_secret(view: View, *, as_json: bool) -> None:
    """A token that was made, and that it has to be kept."""
    lines = [str(view.get("token")), f"Keep it: it is not shown again (id {view.get('id')})."]
    open_screen(as_json=as_json).answer(view, lines)


def show_revoked(token_id: str, view: View, *, as_json: bool) -> None:
    """Say which tokens ended together."""
    ended = [str(each) for each in view["revoked"]]
    lines = [f"Token {token_id} {'is revoked' if token_id in ended else 'had ended'}."]
    if others := [each for each in ended if each != token_id]:
        told = count_text(len(others), "token")
        lines.append(f"With it ended {told} made with it or rotated from it: {', '.join(others)}.")
    open_screen(as_json=as_json).answer(view, lines)

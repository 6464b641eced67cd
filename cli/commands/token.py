"""`finishline token`: make, list and revoke API tokens (organisers only)."""

from typing import Annotated, Literal

import typer

from cli.account_tables import token_table
from cli.client import ServerClient, segment
from cli.errors import ExitCode
from cli.options import DEFAULT_URL, Json, Token, Url
from cli.screen import open_screen

app = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke API tokens of others (organisers only)."
)


@app.command("create")
def create_token(
    user: Annotated[str, typer.Argument(help="Name of the user.")],
    role: Annotated[
        Literal["submitter", "organiser", "admin", "worker"],
        typer.Option("--role", help="Role of the token."),
    ] = "submitter",
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="Days until it expires.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Make a token. It is shown this once."""
    body = {"user": user, "role": role, "expires_in_days": days}
    with ServerClient(url, token) as server:
        view = server.post("/tokens", body)
    lines = [str(view.get("token")), f"Keep it: it is not shown again (id {view.get('id')})."]
    open_screen(as_json=as_json).answer(view, lines)
    return int(ExitCode.OK)


@app.command("list")
def list_tokens(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List the tokens, without their secrets."""
    with ServerClient(url, token) as server:
        view = server.get("/tokens")
    open_screen(as_json=as_json).answer(view, [token_table(view["tokens"])])
    return int(ExitCode.OK)


@app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Revoke a token: it is refused from then on."""
    with ServerClient(url, token) as server:
        server.delete(f"/tokens/{segment(token_id)}")
    document = {"id": token_id, "revoked": True}
    open_screen(as_json=as_json).answer(document, [f"Token {token_id} is revoked."])
    return int(ExitCode.OK)

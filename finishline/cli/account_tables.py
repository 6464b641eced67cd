"""Users, organisations and tokens as tables and lines for people."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.formats import ABSENT, minute_text
from finishline.cli.tables import View, make_table, or_dash


def token_table(tokens: Sequence[View]) -> RenderableType:
    """The tokens of a server, without their secrets."""
    table = make_table("id", "user", "role", "scopes", "label", "last used", "expires", "revoked")
    for item in tokens:
        table.add_row(
            or_dash(item.get("id")),
            or_dash(item.get("user")),
            or_dash(item.get("role")),
            ", ".join(item.get("scopes") or ()) or ABSENT,
            or_dash(item.get("label")),
            minute_text(item.get("last_used_at")),
            minute_text(item.get("expires_at")),
            minute_text(item.get("revoked_at")),
        )
    return table


def user_table(users: Sequence[View]) -> RenderableType:
    """The users of a server, as admins see them."""
    if not users:
        return Text("No user fits.", style="dim")
    table = make_table(
        "name", "role", "organisation", "e-mail", "tokens", "last used", "state", right=("tokens",)
    )
    for item in users:
        table.add_row(
            or_dash(item.get("name")),
            or_dash(item.get("role")),
            or_dash(item.get("organisation")),
            or_dash(item.get("email")),
            or_dash(item.get("tokens")),
            minute_text(item.get("last_used_at")),
            "disabled" if item.get("disabled_at") else "enabled",
        )
    return table


def organisation_table(organisations: Sequence[View]) -> RenderableType:
    """The organisations of a server."""
    if not organisations:
        return Text("There is no organisation yet.", style="dim")
    table = make_table("organisation", "users", right=("users",))
    for item in organisations:
        table.add_row(or_dash(item.get("name")), or_dash(item.get("users")))
    return table


def account_lines(view: View) -> list[RenderableType]:
    """Whose token this is, and what it may do."""
    organisation = view.get("organisation")
    role, highest = view.get("role"), view.get("highest_role")
    whose = f"{view.get('user')}, {organisation}" if organisation else str(view.get("user"))
    return [
        Text(whose, style="bold"),
        Text(f"token {view.get('token_id')}: {view.get('label') or 'without a label'}"),
        Text(f"role {role}" + (f"; yours may be up to {highest}" if highest != role else "")),
        Text(f"scopes {', '.join(view.get('scopes') or ()) or 'none'}"),
        Text(f"expires {minute_text(view.get('expires_at'))}"),
    ]

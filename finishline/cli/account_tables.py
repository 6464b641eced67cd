"""Accounts, organisations, tokens and quotas as tables and lines for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.tables import ABSENT, View, make_table, minute_text, or_dash


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
        return Text("No matching user.", style="dim")
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
        return Text("No organisations yet.", style="dim")
    table = make_table("organisation", "users", right=("users",))
    for item in organisations:
        table.add_row(or_dash(item.get("name")), or_dash(item.get("users")))
    return table


def account_lines(view: View) -> list[RenderableType]:
    """The owner of this token, and its rights."""
    organisation = view.get("organisation")
    role, highest = view.get("role"), view.get("highest_role")
    whose = f"{view.get('user')}, {organisation}" if organisation else str(view.get("user"))
    return [
        Text(whose, style="bold"),
        Text(f"token {view.get('token_id')}: {view.get('label') or 'without a label'}"),
        Text(
            f"role {role}" + (f"; your account allows up to {highest}" if highest != role else "")
        ),
        Text(f"scopes {', '.join(view.get('scopes') or ()) or 'none'}"),
        Text(f"expires {minute_text(view.get('expires_at'))}"),
    ]


MEASURES = {
    "submissions_per_day": ("submissions in 24 hours", 1),
    "gpu_seconds_per_month": ("accelerator hours in 30 days", 3600),
}


def quota_table(views: Sequence[View]) -> RenderableType:
    """Use of each quota, and when there is room again."""
    table = make_table(
        "subject", "quota", "used", "reserved", "allowed", "resets",
        right=("used", "reserved", "allowed"),
    )  # fmt: skip
    for view in views:
        for use in view["quotas"]:
            name, each = _measure(use["measure"])
            table.add_row(
                f"{view['subject_kind']} {view['subject']}",
                name,
                _amount(use["used"], each),
                _amount(use["reserved"], each),
                _allowed(use["allowed"], each),
                f"{minute_text(room_at)}Z" if (room_at := use["room_at"]) else ABSENT,
            )
    return table


def set_quota_table(view: View) -> RenderableType:
    """Quotas of each user, and those set apart from the defaults."""
    table = make_table("subject", "quota", "allowed", "reason", right=("allowed",))
    for measure, allowed in view["defaults"].items():
        name, each = _measure(measure)
        table.add_row(Text("each user", style="dim"), name, _allowed(allowed, each), "")
    for item in view["quotas"]:
        name, each = _measure(item["measure"])
        whose = f"{item['subject_kind']} {item['subject']}"
        table.add_row(whose, name, _allowed(item["amount"], each), str(item["reason"]))
    return table


def _measure(name: str) -> tuple[str, int]:
    return MEASURES.get(name, (name, 1))


def _amount(value: Any, each: int) -> str:
    return f"{float(value) / each:,.10g}" if each == 1 else f"{float(value) / each:,.2f}"


def _allowed(value: Any, each: int) -> str:
    return "no limit" if value is None else _amount(value, each)

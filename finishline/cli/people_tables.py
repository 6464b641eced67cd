"""Accounts, tokens, quotas, the audit log, prices and webhooks as tables and lines for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.tables import (
    ABSENT,
    View,
    make_table,
    minute,
    minute_text,
    number_text,
    or_dash,
)


def token_table(tokens: Sequence[View]) -> RenderableType:
    """The tokens of a server, without their secrets."""
    table = make_table("id", "user", "role", "label", "last used", "expires", "revoked")
    for item in tokens:
        table.add_row(
            or_dash(item.get("id")),
            or_dash(item.get("user")),
            or_dash(item.get("role")),
            or_dash(item.get("label")),
            minute_text(item.get("last_used_at")),
            minute_text(item.get("expires_at")),
            minute_text(item.get("revoked_at")),
        )
    return table


def invitation_table(invitations: Sequence[View]) -> RenderableType:
    """The links by which people join, without their codes."""
    if not invitations:
        return Text("No links.", style="dim")
    table = make_table("id", "role", "used", "until", "domain", "organisation", "made by", "state")
    for item in invitations:
        table.add_row(
            or_dash(item.get("id")),
            or_dash(item.get("role")),
            f"{item.get('uses')} of {item.get('uses_allowed')}",
            minute_text(item.get("expires_at")),
            or_dash(item.get("mail_domain")),
            or_dash(item.get("organisation")),
            or_dash(item.get("made_by")),
            or_dash(item.get("state")),
        )
    return table


def user_table(users: Sequence[View]) -> RenderableType:
    """The users of a server, as admins see them."""
    if not users:
        return Text("No matching user.", style="dim")
    table = make_table(
        "name", "shown as", "role", "organisation", "e-mail", "tokens", "last used", "state",
        right=("tokens",),
    )  # fmt: skip
    for item in users:
        table.add_row(
            or_dash(item.get("name")),
            or_dash(item.get("display_name")),
            or_dash(item.get("role")),
            or_dash(item.get("organisation")),
            or_dash(item.get("email")),
            or_dash(item.get("tokens")),
            minute_text(item.get("last_used_at")),
            _state(item),
        )
    return table


def _state(user: View) -> str:
    state = "disabled" if user.get("disabled_at") else "enabled"
    return f"{state}, known" if user.get("known_at") else state


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
        *([Text(f"shown as {view['display_name']}")] if view.get("display_name") else []),
        Text(f"token {view.get('token_id')}: {view.get('label') or 'without a label'}"),
        Text(
            f"role {role}" + (f"; your account allows up to {highest}" if highest != role else "")
        ),
        Text(f"expires {minute_text(view.get('expires_at'))}"),
    ]


MEASURES = {
    "submissions_per_day": ("submissions in 24 hours", 1),
    "gpu_seconds_per_month": ("accelerator hours in 30 days", 3600),
}


def quota_table(view: View) -> RenderableType:
    """Use of each quota of a user, and when there is room again."""
    table = make_table(
        "user", "quota", "used", "reserved", "allowed", "resets",
        right=("used", "reserved", "allowed"),
    )  # fmt: skip
    for use in view["quotas"]:
        name, each = _measure(use["measure"])
        table.add_row(
            or_dash(view.get("user")),
            name,
            _amount(use["used"], each),
            _amount(use["reserved"], each),
            _allowed(use["allowed"], each),
            f"{minute_text(room_at)}Z" if (room_at := use["room_at"]) else ABSENT,
        )
    return table


def set_quota_table(view: View) -> RenderableType:
    """Quotas of each user, and those of users with an override."""
    table = make_table("user", "quota", "allowed", right=("allowed",))
    for measure, allowed in view["defaults"].items():
        name, each = _measure(measure)
        table.add_row(Text("each user", style="dim"), name, _allowed(allowed, each))
    for item in view["overrides"]:
        for measure, allowed in item["quotas"].items():
            name, each = _measure(measure)
            table.add_row(or_dash(item.get("user")), name, _allowed(allowed, each))
    return table


def _measure(name: str) -> tuple[str, int]:
    return MEASURES.get(name, (name, 1))


def _amount(value: Any, each: int) -> str:
    return f"{float(value) / each:,.10g}" if each == 1 else f"{float(value) / each:,.2f}"


def _allowed(value: Any, each: int) -> str:
    return "no limit" if value is None else _amount(value, each)


def audit_table(records: Sequence[View]) -> RenderableType:
    """Records of the audit log, newest first."""
    if not records:
        return Text("No actions yet.", style="dim")
    table = make_table("id", "when", "who", "action", "subject", "reason")
    for item in records:
        table.add_row(
            str(item.get("id")),
            str(item.get("at"))[:19],
            or_dash(item.get("actor")),
            or_dash(item.get("action")),
            f"{item.get('subject_kind')} {item.get('subject_id')}",
            or_dash(item.get("reason")),
        )
    return table


def price_table(prices: Sequence[View]) -> RenderableType:
    """Entries of the price book; superseded ones name the entry that replaces them."""
    if not prices:
        return Text("No prices yet. Add one with `finishline prices add`.", style="dim")
    table = make_table(
        "id", "provider", "instance", "region", "class", "kind", "$/hour", "from", "status",
        "source", right=("id", "$/hour"), spare=("source", "kind", "class"),
    )  # fmt: skip
    for item in prices:
        later = item.get("superseded_by")
        standing = "never ranks" if item.get("pricing") == "spot" else "stands"
        table.add_row(
            str(item.get("id")),
            or_dash(item.get("provider")),
            or_dash(item.get("instance")),
            or_dash(item.get("region")),
            or_dash(item.get("hardware_class")),
            str(item.get("pricing")).replace("_", "-"),
            number_text(item.get("usd_per_hour"), digits=4),
            or_dash(item.get("effective_on")),
            standing if later is None else f"superseded by {later}",
            or_dash(item.get("source_url")),
        )
    return table


def webhook_table(hooks: Sequence[View]) -> RenderableType:
    """A user's webhooks; disabled ones with the reason."""
    if not hooks:
        return Text("No webhooks yet. Make one with `finishline webhook add`.", style="dim")
    table = make_table("id", "scope", "events", "state", "address", right=("events",))
    for item in hooks:
        state = "failing" if item.get("failing_since") else "on"
        table.add_row(
            or_dash(item.get("id")),
            or_dash(item.get("benchmark") or item.get("scope")),
            str(len(item.get("kinds") or ())),
            str(item.get("disabled_because") or state),
            or_dash(item.get("url")),
        )
    return table


def delivery_table(deliveries: Sequence[View]) -> RenderableType:
    """Deliveries to a webhook, with the latest try of each."""
    if not deliveries:
        return Text("No deliveries yet. Send one with `finishline webhook test ID`.", style="dim")
    table = make_table(
        "id", "event", "state", "tries", "response", "ms", "next retry", right=("id", "tries", "ms")
    )
    for item in deliveries:
        tries = item.get("tries") or [{}]
        last = tries[-1]
        table.add_row(
            str(item.get("id")),
            or_dash(item.get("kind")),
            or_dash(item.get("state")),
            str(len(item.get("tries") or ())),
            or_dash(last.get("status") or last.get("error")),
            number_text(last.get("milliseconds")),
            minute(item.get("due_at")),
        )
    return table

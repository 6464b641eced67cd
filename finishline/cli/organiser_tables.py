"""The audit log, prices, webhooks and their deliveries as tables for people."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.tables import View, make_table, minute, number_text, or_dash


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
        "id", "provider", "instance", "region", "kind", "$/hour", "from", "status", "source",
        right=("id", "$/hour"), spare=("source", "kind"),
    )  # fmt: skip
    for item in prices:
        later = item.get("superseded_by")
        standing = "never ranks" if item.get("pricing") == "spot" else "stands"
        table.add_row(
            str(item.get("id")),
            or_dash(item.get("provider")),
            or_dash(item.get("instance")),
            or_dash(item.get("region")),
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

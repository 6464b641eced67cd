"""Webhooks and what was sent to them as tables for people."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.formats import number_text
from finishline.cli.tables import View, make_table, minute, or_dash


def webhook_table(hooks: Sequence[View]) -> RenderableType:
    """Somebody's webhooks; what was switched off says why."""
    if not hooks:
        return Text("No webhook here yet; make one with `finishline webhook add`.", style="dim")
    table = make_table("id", "of", "events", "state", "address", right=("events",))
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
    """What was sent to a webhook, with the latest try of each."""
    if not deliveries:
        return Text("Nothing was sent to it; `finishline webhook test ID` does.", style="dim")
    table = make_table(
        "id", "event", "state", "tries", "answer", "ms", "next try", right=("id", "tries", "ms")
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

"""The audit log and the price book as tables for people."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.formats import number_text
from finishline.cli.tables import View, make_table, or_dash


def audit_table(records: Sequence[View]) -> RenderableType:
    """Records of the audit log, newest first."""
    if not records:
        return Text("Nothing was changed yet.", style="dim")
    table = make_table("id", "when", "who", "what", "subject", "reason")
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
    """Entries of the price book; what is superseded says by which."""
    if not prices:
        return Text("No price here yet; add one with `finishline prices add`.", style="dim")
    table = make_table(
        "id", "provider", "instance", "region", "kind", "$/hour", "from", "standing", "source",
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

"""Quotas as tables for people: accelerators in hours."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.formats import ABSENT, minute_text
from finishline.cli.tables import View, make_table

MEASURES = {
    "submissions_per_day": ("submissions in 24 hours", 1),
    "gpu_seconds_per_month": ("accelerator hours in 30 days", 3600),
}


def quota_table(views: Sequence[View]) -> RenderableType:
    """What is used of what is allowed, and when there is room again."""
    table = make_table(
        "whose", "of what", "used", "reserved", "allowed", "room again",
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
    """What each user is allowed, and what is set otherwise."""
    table = make_table("whose", "of what", "allowed", "reason", right=("allowed",))
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

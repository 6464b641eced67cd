"""Who held a worker or a queue, since when and why, in a line each."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from finishline.cli.formats import minute_text

View = Mapping[str, Any]


def held_lines(view: View) -> Iterator[Text]:
    """A line for each worker that an organiser paused or drained."""
    for worker in view.get("workers") or []:
        if worker.get("held"):
            yield _line(
                f"{worker.get('name')} {worker['held']}",
                by=worker.get("held_by"),
                since=worker.get("held_at"),
                why=worker.get("held_because"),
            )


def paused_lines(queue: View) -> Iterator[Text]:
    """A line for each hardware class that is paused, and for all of them together."""
    classes = [(str(one.get("hardware_class") or "any"), one) for one in queue.get("classes") or []]
    for name, one in [("every queue", queue), *classes]:
        if pause := one.get("paused"):
            yield _line(
                f"{name} paused",
                by=pause.get("by"),
                since=pause.get("since"),
                why=pause.get("reason"),
            )


def _line(what: str, *, by: str | None, since: str | None, why: str | None) -> Text:
    return Text(f"{what} by {by or 'somebody'} since {minute_text(since)} UTC: {why}", "yellow")

"""Workers, their queue and their holds as tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.tables import View, make_table, minute, minute_text, number_text, or_dash


def worker_table(workers: Sequence[View]) -> RenderableType:
    """The workers a server has heard of."""
    if not workers:
        return Text("No worker has reported yet; start one with `python -m worker`.", style="dim")
    table = make_table(
        "worker", "hardware class", "state", "alive", "canary", "last seen", "processor",
        right=("canary",),
    )  # fmt: skip
    for item in workers:
        table.add_row(
            or_dash(item.get("name")),
            or_dash(item.get("hardware_class")),
            or_dash(item.get("state")),
            "yes" if item.get("alive") else "no",
            _of_baseline(item),
            minute(item.get("last_seen_at")),
            or_dash((item.get("system") or {}).get("processor")),
        )
    return table


def order_text(order: str, view: View) -> str:
    """Describe a worker after an order, from the state in the server's response."""
    worker = view["worker"]
    if order == "confirm":
        return f"is confirmed for hardware class {worker['hardware_class']}"
    if worker.get("alive", True):
        return _order_to_living(order, worker)
    if order == "resume":
        return "is resumed but not running: start it again on its machine"
    return "is not running; once started again, it leases nothing until it is resumed"


def _order_to_living(order: str, worker: View) -> str:
    if order == "resume" and worker.get("drift"):
        return "is resumed, and gets no work while its canary is off its baseline"
    return {"pause": "is paused", "resume": "is resumed"}[order]


def _of_baseline(worker: View) -> str:
    """Speed of a worker relative to its own baseline; a dash where it has none yet."""
    ratio = (worker.get("canary") or {}).get("ratio")
    return number_text(None if ratio is None else 100 * ratio, digits=1, unit=" %")


def _under_embargo(queue: View) -> int:
    return sum(one.get("under_embargo") or 0 for one in queue.get("classes") or [])


def embargo_lines(queue: View) -> Iterator[Text]:
    """Count of waiting attempts that the reader may not see, if any."""
    if hidden := _under_embargo(queue):
        yield Text(f"{hidden} under embargo {'waits' if hidden == 1 else 'wait'}.", style="dim")


def queue_table(queue: View) -> RenderableType:
    """Waiting attempts by hardware class, in the order in which they start."""
    classes = [one for one in queue.get("classes") or [] if one.get("waiting")]
    if not classes:
        hidden = _under_embargo(queue)
        return Text("Nothing else is queued." if hidden else "The queue is empty.", style="dim")
    table = make_table(
        "hardware class", "place", "verification", "kind", "benchmark", "requested", "starts",
        right=("place",), spare=("kind", "requested"),
    )  # fmt: skip
    for one in classes:
        for item in one["waiting"]:
            table.add_row(
                one.get("hardware_class") or "any",
                str(item.get("position")),
                or_dash(item.get("verification_id")),
                or_dash(item.get("kind")),
                or_dash(item.get("benchmark")),
                minute(item.get("asked_at")),
                minute(start)
                if (start := item.get("expected_start"))
                else or_dash(item.get("why_unknown")),
            )
    return table


def held_lines(view: View) -> Iterator[Text]:
    """A line for each worker that an organiser paused."""
    for worker in view.get("workers") or []:
        if worker.get("held"):
            yield _line(
                f"{worker.get('name')} {worker['held']}",
                by=worker.get("held_by"),
                since=worker.get("held_at"),
                why=worker.get("held_because"),
            )


WHOSE = {
    "anyone": "packages of anyone",
    "known": "packages of participants known to an organiser",
    "off": "no packages",
}


def box_lines(view: View) -> Iterator[Text]:
    """A line for each worker that tells whose packages it trains, in which environments."""
    for worker in view.get("workers") or []:
        if box := worker.get("box"):
            entries = str(box.get("entries"))
            why = f" ({box['why']})" if box.get("why") else ""
            names = "" if entries == "off" else ", ".join(box.get("environments") or ())
            told = f"{worker.get('name')} trains {WHOSE.get(entries, entries)}{why}"
            yield Text(f"{told}: {names}" if names else told)


def paused_lines(queue: View) -> Iterator[Text]:
    """A line for the pause of everything."""
    if pause := queue.get("paused"):
        yield _line(
            "every queue paused",
            by=pause.get("by"),
            since=pause.get("since"),
            why=pause.get("reason"),
        )


def _line(what: str, *, by: str | None, since: str | None, why: str | None) -> Text:
    return Text(f"{what} by {by or 'somebody'} since {minute_text(since)} UTC: {why}", "yellow")

"""`finishline board`: the benchmarks of a server, and the ranking of one."""

from collections.abc import Iterator
from typing import Annotated

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from finishline.api.boards import flat
from finishline.cli.client import ServerClient, segment
from finishline.cli.listings import TABLES, table_of
from finishline.cli.options import Limit
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.cli.tables import View, or_dash
from finishline.rules.ranking import busy_words, place_words

Choice = str | None
Metric = Annotated[
    Choice,
    Option("--metric", help="tta, cost or energy, and for inference latency or inference_cost."),
]


@asks_server
def board(
    server: ServerClient,
    screen: Screen,
    benchmark: Annotated[str | None, Argument(help="Id of a benchmark.")] = None,
    division: Annotated[Choice, Option(help="closed or open.")] = None,
    round_name: Annotated[
        Choice, Option("--round", help="open, or archive for published results.")
    ] = None,
    metric: Metric = None,
    status: Annotated[Choice, Option(help="For example verified.")] = None,
    evidence: Annotated[Choice, Option(help="measured, published or claimed.")] = None,
    search: Annotated[Choice, Option("--q", help="Search text.")] = None,
    sort: Annotated[Choice, Option(help="Column to sort by.")] = None,
    order: Annotated[Choice, Option(help="asc or desc.")] = None,
    withdrawn: Annotated[
        bool, Option("--withdrawn", help="Also list withdrawn submissions, unranked.")
    ] = False,
    preview: Annotated[
        bool, Option("--preview", help="Show the board as after its embargo (organisers).")
    ] = False,
    limit: Limit = 50,
) -> None:
    """List the server's benchmarks, or show the leaderboard of one."""
    if benchmark is None:
        view = server.get("/benchmarks")
        screen.answer(view, [table_of("benchmarks", view["benchmarks"])])
        return
    view = server.get(
        f"/leaderboards/{segment(benchmark)}{'/preview' if preview else ''}",
        division=division,
        round=round_name,
        metric=metric,
        status=status,
        evidence=evidence,
        q=search,
        sort=sort,
        order=order,
        limit=limit,
        withdrawn="show" if withdrawn else None,
    )
    filtered = any(choice is not None for choice in (division, metric, status, evidence, search))
    chosen = Text(f"Division {view.get('division')}; --division shows another.")
    lines: list[RenderableType] = [
        *_preview_lines(view),
        *([chosen] if division is None and view.get("division") else []),
        *leaderboard_lines(view, filtered=filtered),
    ]
    screen.answer(view, lines)


def _preview_lines(board: View) -> Iterator[Text]:
    preview = board.get("preview") or {}
    if preview.get("note"):
        yield Text(str(preview["note"]), style="bold yellow")
    if preview.get("hidden"):
        yield Text(f"under embargo: {', '.join(preview['hidden'])}", style="yellow")


def leaderboard_lines(board: View, *, filtered: bool = False) -> Iterator[RenderableType]:
    """Yield the ranked entries, then the others. `filtered` means that there may be more."""
    entries = [flat(row) for row in board.get("entries") or []]
    if not entries:
        yield Text(
            "No submission matches the filters."
            if filtered
            else "No submissions yet. Upload the first with `finishline submit PATH`. "
            "Organisers bring published results with "
            "`finishline import`. `finishline benchmark phase ID` tells of an embargo.",
            style="dim",
        )
    elif board.get("kind") == "inference":
        by_cost = board.get("metric") == "inference_cost"
        yield table_of("latencies", entries, spare=("quality",) if by_cost else None)
    else:
        name = "qualities" if board.get("metric") == "quality" else "times"
        spare = [each for each in TABLES[name].spare if each != board.get("metric")]
        yield table_of(name, entries, spare=tuple(spare))
    for entry in entries:
        if why := entry.get("not_first"):
            yield Text(f"#{entry['rank']}, {entry['submission_id']}: {why}", style="yellow")
        if why := busy_words(entry):
            yield Text(f"{entry['submission_id']}: {why}", style="yellow")
    unranked: dict[str, list[str]] = {}
    for entry in entries:
        if (reason := entry.get("unranked_reason")) and place_words(entry) is None:
            unranked.setdefault(str(reason), []).append(or_dash(entry.get("submission_id")))
    for reason, submissions in unranked.items():
        yield Text(f"not ranked, {reason}: {', '.join(submissions)}", style="yellow")
    for sha256, words in (board.get("other_rules") or {}).items():
        others = ", ".join(
            or_dash(entry.get("submission_id"))
            for entry in entries
            if entry.get("benchmark_sha256") == sha256
        )
        yield Text(f"other rules, not comparable ({words}): {others}", style="yellow")

"""Commands that read: show, leaderboard, benchmarks."""

from typing import Annotated

import typer

from finishline.cli.board_tables import (
    benchmark_table,
    division_lines,
    leaderboard_table,
    other_rules_lines,
    preview_lines,
    unranked_lines,
)
from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Limit, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.submission_tables import submission_lines

Choice = str | None
Metric = Annotated[
    Choice,
    typer.Option("--metric", help="tta, cost or energy; for inference: latency or inference_cost."),
]


def show(
    submission: Annotated[str, typer.Argument(help="Id of a submission.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show one submission with its runs and verifications."""
    with ServerClient(url, token) as server:
        view = server.get(f"/submissions/{segment(submission)}")
    verifications = [
        f"verification {item.get('id')}: {item.get('outcome') or item.get('state')}"
        for item in view.get("verifications") or []
    ]
    open_screen(as_json=as_json).answer(view, [*submission_lines(view), *verifications])
    return int(ExitCode.OK)


def leaderboard(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark.")],
    division: Annotated[Choice, typer.Option("--division", help="closed or open.")] = None,
    round_name: Annotated[
        Choice, typer.Option("--round", help="open, or archive for published results.")
    ] = None,
    metric: Metric = None,
    status: Annotated[Choice, typer.Option("--status", help="For example verified.")] = None,
    evidence: Annotated[
        Choice, typer.Option("--evidence", help="measured, published or claimed.")
    ] = None,
    search: Annotated[Choice, typer.Option("--q", help="Search text.")] = None,
    sort: Annotated[Choice, typer.Option("--sort", help="Column to sort by.")] = None,
    order: Annotated[Choice, typer.Option("--order", help="asc or desc.")] = None,
    withdrawn: Annotated[
        bool, typer.Option("--withdrawn", help="Also list withdrawn submissions, unranked.")
    ] = False,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Show the board as after its embargo (organisers)."),
    ] = False,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show a benchmark's leaderboard."""
    with ServerClient(url, token) as server:
        board = server.get(
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
    table = leaderboard_table(board, filtered=filtered)
    lines = [
        *preview_lines(board),
        *(division_lines(board) if division is None else ()),
        table,
        *unranked_lines(board),
        *other_rules_lines(board),
    ]
    open_screen(as_json=as_json).answer(board, lines)
    return int(ExitCode.OK)


def benchmarks(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> int:
    """List the server's benchmarks."""
    with ServerClient(url, token) as server:
        view = server.get("/benchmarks")
    open_screen(as_json=as_json).answer(view, [benchmark_table(view["benchmarks"])])
    return int(ExitCode.OK)

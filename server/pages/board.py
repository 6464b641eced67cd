"""Show a benchmark: its board, the tree of its lineage, and the unit of its times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from pydantic import ConfigDict, Field, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.board_versions import board_version, cached_for_board
from server.base.database import ServicesDep, benchmarks_of
from server.base.errors import ConflictError, ContentError, ServerError
from server.base.models import PoolRun, Verification
from server.benchmarks.definitions import find_benchmark, round_of, rounds_of
from server.benchmarks.endpoints import NO_SUBMISSIONS, benchmark_view, count_submissions
from server.benchmarks.phases import current_dates
from server.boards.board import (
    RankedBoard,
    board_in_division,
    cut_board,
    ranked_board,
)
from server.boards.endpoints import Encoded, answer_board
from server.boards.lineage import MOST_PACKAGES, has_lineage, list_ideas
from server.boards.query import BoardQuery
from server.boards.records import first_row, list_records
from server.pages.declared import Context, public_page, sentence_of
from server.pages.entries import trainings_table
from web.board_table import USUAL_LIMIT
from web.formats import SECONDS, TimeFormat, time_format
from web.render import render


def times_of_board(benchmark: Benchmark, board: RankedBoard) -> TimeFormat:
    """Choose the definition's unit, or the unit that fits the numbered rows."""
    rows = board.numbered or list(board.rows.values())
    return times_fitting(benchmark, (row.tta_seconds for row in rows))


def times_fitting(benchmark: Benchmark, seconds: Iterable[float | None]) -> TimeFormat:
    """Choose the definition's unit, or the unit that fits these times."""
    if benchmark.score.by == "quality":
        title = f"{benchmark.target.called} in {benchmark.reach.budget_seconds:g} s"
        return TimeFormat(title=title[:1].upper() + title[1:], quality_unit=benchmark.target.unit)
    return time_format(seconds, benchmark.time_unit)


def times_of(
    session: Session, benchmark_id: str, division: str | None, evidence: str
) -> TimeFormat:
    """Choose an official board's unit, cached by version. Seconds if it was removed."""
    benchmark = benchmarks_of(session).get(benchmark_id)
    if benchmark is None:
        return SECONDS
    division, part = division or benchmark.divisions[0], round_of(benchmark, evidence)

    def find() -> TimeFormat:
        query = BoardQuery.model_validate({"division": division, "round": part})
        return times_of_board(benchmark, ranked_board(session, benchmark, query))

    return cached_for_board(session, benchmark_id, f"times {division} {part}", find)


Problem = dict[str, Any]
# Errors that reading a query, or a board by it, may raise.
REFUSALS = (ValidationError, RuleError, ConflictError, ContentError)
LABELS = {
    "metric": "Ranked by",
    "q": "Text",
    "hardware_class": "Hardware class",
    "date_from": "From",
    "date_to": "To",
    "price": "Your price",
    "prices_on": "Prices of",
}
WHAT_IF_FIELDS = ("clock", "target", "price", "prices_on")


class PageQuery(BoardQuery):
    """The query of a board's page: shorter pages, chosen columns, unknown parameters ignored."""

    model_config = ConfigDict(extra="ignore")

    limit: int = Field(default=USUAL_LIMIT, ge=1, le=1000)
    columns: str | None = Field(default=None, max_length=200)


def problems_of(
    error: ValidationError | RuleError | ServerError, typed: Mapping[str, str]
) -> list[Problem]:
    """Describe a refused query, one problem for each wrong field."""
    if isinstance(error, ValidationError):
        fields = [
            (str(item["loc"][0]) if item["loc"] else "query", sentence_of(item))
            for item in error.errors()
        ]
    elif isinstance(error, RuleError):
        fields = [
            (
                (one.field or "").removeprefix("query."),
                f"Expected {one.expected}." if one.expected else one.message,
            )
            for one in error.problems
        ]
    else:  # A wrong place in a board, or a place of an earlier version.
        fields = [("cursor", error.detail)]
    return [
        {
            "name": name,
            "label": LABELS.get(name, name.replace("_", " ").capitalize()),
            "typed": typed.get(name),
            "message": message,
        }
        for name, message in fields
    ]


def query_instead(typed: Mapping[str, str], problems: Sequence[Problem]) -> BoardQuery:
    """Make a query for the same kind of board as the refused query, if its metric is right."""
    metric = typed.get("metric")
    is_refused = any(problem["name"] == "metric" for problem in problems)
    return BoardQuery.model_validate({"metric": metric} if metric and not is_refused else {})


DATES = {
    "opens_at": "Opens",
    "freezes_at": "Rules frozen from",
    "closes_at": "Closes",
    "embargo_until": "Results under embargo until",
}


def board_context(session: Session, benchmark: Benchmark, query: BoardQuery) -> Context:
    """Describe a benchmark and the asked part of its board. Raises RuleError for its target."""
    version = board_version(session, benchmark.benchmark_id)
    query, ranked = board_in_division(session, benchmark, query, version=version)
    board = cut_board(session, ranked, benchmark, query, version=version)
    if board["what_if"] or board["price"]:
        usual = query.model_copy(update=dict.fromkeys(WHAT_IF_FIELDS))
        official = ranked_board(session, benchmark, usual, version=version)
        ranks = {row["submission_id"]: row["rank"] for row in official.page()}
        found = ((e["submission_id"], e["rank"]) for e in board["entries"])
        # Ranks that entries gain over the official ranking. Below 0 are lost.
        board["moves"] = {n: ranks[n] - rank for n, rank in found if rank and ranks.get(n)}
    named = {"benchmark": benchmark.benchmark_id}
    board["entries"] = [entry | named for entry in board["entries"]]
    first = ranked.page(0, 1)[0].entry() | named if ranked.order.numbered else None
    if first is not None:
        runs = select(PoolRun.index).join(Verification, Verification.id == PoolRun.verification_id)
        of_pairs = PoolRun.pool_id == first["pool_id"], Verification.kind == HEAD_TO_HEAD.name
        first["paired_runs"] = len(session.scalars(runs.where(*of_pairs)).all())
    evidence = "measured" if query.round == "open" else "published"
    others = [
        first_row(one).model_dump() | {"division": one.division}
        for one in list_records(session, benchmark, version=version).divisions
        if one.holder and one.division != query.division and one.evidence == evidence
        if ranked.hardware_class in (None, one.hardware_class)
    ]
    around = _around(session, benchmark, query, version)
    # Without published results there is one round, and it stays out of the links.
    only = None if around["benchmark"]["published"] else {"round"}
    return around | {
        "board": board,
        "time": times_of_board(benchmark, ranked),
        "facts": {"entries": len(ranked.rows)},
        "first": first,
        "others": others,
        "place": ranked.first_place,
        "classes": [name for name in (ranked.hardware_class, *ranked.other_classes) if name],
        "filters": query.model_dump(mode="json", exclude_defaults=True, exclude=only),
        "facets": ranked.facets,
    }


def refused_context(
    session: Session, benchmark: Benchmark, typed: Context, problems: list[Context]
) -> Context:
    """Describe a board's page after a refused query: the form as typed, and its problems."""
    context = board_context(session, benchmark, query_instead(typed, problems))
    nothing = {"entries": [], "total": 0, "next_cursor": None, "first": None}
    board = context["board"] | nothing
    return context | {"board": board, "filters": typed, "problems": problems}


def _around(session: Session, benchmark: Benchmark, query: BoardQuery, version: int) -> Context:
    benchmark_id = benchmark.benchmark_id
    counts = count_submissions(session, [benchmark_id]).get(benchmark_id, NO_SUBMISSIONS)
    view = benchmark_view(benchmark, counts).model_dump(mode="json")
    shown = query.round if query.round in rounds_of(benchmark) else None
    published = sorted(counts.published) if shown else []
    cached = partial(cached_for_board, session, benchmark_id, version=version)
    return {
        "benchmark": view | {"round": shown, "published": published},
        "lineage": cached("lineage", lambda: has_lineage(session, benchmark_id)),
        "rules": benchmark,
        "kind": query.kind,
        "dates": cached("dates", lambda: _dates(session, benchmark)),
        "trainings": trainings_table(benchmark),
    }


def _dates(session: Session, benchmark: Benchmark) -> list[tuple[str, str]]:
    """List the dates of a benchmark's phases. Setting one changes the board's version."""
    dates = current_dates(session, benchmark.benchmark_id)
    found = ((words, getattr(dates, name)) for name, words in DATES.items())
    return [(words, moment.isoformat()) for words, moment in found if moment is not None]


router = APIRouter(include_in_schema=False)
HTML = "text/html; charset=utf-8"


@router.get("/benchmarks/{benchmark_id}", response_class=HTMLResponse)
def benchmark_page(benchmark_id: str, services: ServicesDep, request: Request) -> Response:
    """Show a leaderboard. An invalid query gets the form with a message for each wrong field."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    typed = dict(request.query_params)
    wants_page = "text/html" in request.headers.get("accept", "")
    try:
        query = PageQuery.model_validate(typed)
        return answer_board(services, request, benchmark_id, query, HTML, _encoded_page)
    except REFUSALS as error:
        if wants_page:
            problems = problems_of(error, typed)
            with services.database.read() as session:
                context = refused_context(session, benchmark, typed, problems)
            return HTMLResponse(render("benchmark.html", **context), status_code=422)
        if isinstance(error, ValidationError):
            found = [item | {"loc": ("query", *item["loc"])} for item in error.errors()]
            raise RequestValidationError(found) from error
        raise


def _encoded_page(session: Session, benchmark: Benchmark, query: BoardQuery) -> Encoded:
    context = board_context(session, benchmark, query)
    page = render("benchmark.html", **context)
    return Encoded(page.encode(), total=context["board"]["total"])


@public_page("/benchmarks/{benchmark_id}/ideas", "ideas.html", to_all=True)
def ideas_page(session: Session, benchmark_id: str) -> Context:
    """Show public code submissions of a benchmark as a tree, by hardware class."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    ideas = list_ideas(session, benchmark)
    unit = benchmark.target.unit if benchmark.score.by == "quality" else None
    classes = [
        {
            "name": each.hardware_class,
            "packages": each.packages,
            "times": replace(time_format(one.seconds for one in each.packages), quality_unit=unit),
        }
        for each in ideas.classes
    ]
    board = board_context(session, benchmark, BoardQuery(limit=1))
    return board | {"classes": classes, "most": MOST_PACKAGES}

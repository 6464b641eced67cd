"""The ideas of a board: its code submissions as a tree, with the seconds that each gained."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.base.services import ServicesDep
from server.benchmarks.queries import find_benchmark
from server.boards.ideas import MOST_PACKAGES, IdeaClassView, list_ideas
from server.boards.lineage import Line, lines_of
from server.boards.schemas import BoardQuery
from server.pages.board_context import board_context
from web.ideas import idea_lines
from web.render import render

router = APIRouter(include_in_schema=False)
Context = dict[str, Any]


@router.get("/benchmarks/{benchmark_id}/ideas", response_class=HTMLResponse)
def ideas_page(benchmark_id: str, services: ServicesDep) -> str:
    """Public code submissions of a benchmark as a tree, by hardware class."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        context = board_context(session, benchmark, BoardQuery(limit=1))
        ideas = list_ideas(session, benchmark)
    classes = [
        {"name": each.hardware_class, "lines": idea_lines(_lines(each))} for each in ideas.classes
    ]
    return render("ideas.html", **context, classes=classes, most=MOST_PACKAGES)


def _lines(found: IdeaClassView) -> list[list[Context]]:
    """The code submissions of a class in lines; times are compared within one alone."""
    packages = {each.sha256: each.model_dump() for each in found.packages}
    parents = {name: package["parent"] for name, package in packages.items()}
    return [_nested(line, packages) for line in lines_of(parents)]


def _nested(line: Line[str], packages: Mapping[str, Context]) -> list[Context]:
    return [
        packages[name]
        | {"branches": [_nested(each, packages) for each in line.branches.get(name, [])]}
        for name in line.names
    ]

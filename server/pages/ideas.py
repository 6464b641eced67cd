"""The ideas of a board: its code submissions as a tree, with the seconds that each gained."""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from server.base.services import Services
from server.benchmarks.definitions import find_benchmark
from server.boards.lineage import MOST_PACKAGES, IdeaClassView, list_ideas
from server.boards.query import BoardQuery
from server.pages.board_context import board_context
from server.pages.declared import Context, public_page
from web.ideas import Line, idea_lines, lines_of


@public_page("/benchmarks/{benchmark_id}/ideas", "ideas.html", to_all=True)
def ideas_page(session: Session, services: Services, benchmark_id: str) -> Context:
    """Public code submissions of a benchmark as a tree, by hardware class."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    ideas = list_ideas(session, benchmark)
    classes = [
        {"name": each.hardware_class, "lines": idea_lines(_lines(each))} for each in ideas.classes
    ]
    board = board_context(session, benchmark, BoardQuery(limit=1))
    return board | {"classes": classes, "most": MOST_PACKAGES}


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

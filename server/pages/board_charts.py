"""The charts of a benchmark's board: each as a figure, and as a page with the same as a table."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from finishline.rules.benchmarks.benchmark import Benchmark
from server.benchmarks.queries import find_benchmark
from server.benchmarks.schemas import benchmark_view
from server.errors import NotFoundError
from server.pages.chart_query import ChartQuery, ChartQueryDep
from server.pages.chart_views import best_ranked, chart_view
from server.people.dependencies import Parts, PartsDep
from web.board_chart import AGAINST
from web.board_charts import BY_NAME, BoardChart
from web.chart_parts import names_of
from web.render import render

router = APIRouter(include_in_schema=False)
CHOICES = 30


@router.get("/benchmarks/{benchmark_id}/charts/{name}.json")
def board_chart_figure(
    benchmark_id: str, name: str, query: ChartQueryDep, parts: PartsDep
) -> dict[str, Any]:
    """The figure of a chart, of what fits the board's filters."""
    chart = find_chart(name)
    return chart.figure(_view(parts, find_benchmark(parts.benchmarks, benchmark_id), chart, query))


@router.get("/benchmarks/{benchmark_id}/charts/{name}", response_class=HTMLResponse)
def board_chart_page(benchmark_id: str, name: str, query: ChartQueryDep, parts: PartsDep) -> str:
    """A chart by itself, what it can be set to, and its figures as a table."""
    chart = find_chart(name)
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    view = _view(parts, benchmark, chart, query)
    meta = chart.figure(view)["layout"].get("meta", {})
    return render(
        "board_chart.html",
        benchmark=benchmark_view(benchmark).model_dump(mode="json"),
        chart=chart,
        about=meta.get("about", chart.about),
        empty=meta.get("empty"),
        table=chart.table(view),
        board=view.get("board"),
        note=view.get("note"),
        choices=_choices(view) if chart.selected else [],
        query=query.as_text(),
        against_links=_against_links(query) if chart.name == "pareto" else [],
        board_link=query.as_text(against=None, select=None),
        filters=query.model_dump(mode="json", exclude_defaults=True),
    )


def find_chart(name: str) -> BoardChart:
    """A chart by its name. Raises NotFoundError naming those there are."""
    if name not in BY_NAME:
        raise NotFoundError(f"There is no chart {name!r}; there are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def _view(parts: Parts, benchmark: Benchmark, chart: BoardChart, query: ChartQuery) -> Any:
    with parts.database.read() as session:
        return chart_view(session, benchmark, chart, query)


def _against_links(query: ChartQuery) -> list[dict[str, Any]]:
    return [
        {
            "label": kind.label,
            "query": query.as_text(against=name),
            "is_shown": name == query.against,
        }
        for name, kind in AGAINST.items()
    ]


def _choices(view: Any) -> list[dict[str, Any]]:
    """The best ranked submissions to choose from, those that are shown among them."""
    shown = [one["entry"] for one in view["sets"]]
    ids = {entry["submission_id"] for entry in shown}
    best = best_ranked(view["board"]["entries"], CHOICES)
    offered = [*best, *(entry for entry in shown if entry not in best)]
    names = names_of(offered, written=str)
    return [
        {
            "submission_id": entry["submission_id"],
            "name": names[entry["submission_id"]],
            "tta_seconds": entry["tta_seconds"],
            "is_shown": entry["submission_id"] in ids,
        }
        for entry in offered
    ]

"""Show the charts of a board: each as a figure, and as a page with the same as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Query
from pydantic import ConfigDict, Field, field_validator
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import is_entry
from finishline.rules.statistics.aggregate import mean
from server.base.database import benchmarks_of
from server.base.errors import NotFoundError
from server.base.models import Submission
from server.benchmarks.calibrations import band_at
from server.benchmarks.definitions import (
    adopted_calibration,
    find_benchmark,
    judging_benchmark,
    round_of,
)
from server.benchmarks.endpoints import benchmark_view
from server.boards.query import BoardQuery, what_if_of
from server.boards.records import list_records
from server.boards.rows import convergence_factor
from server.boards.what_if import RunTime, times_at
from server.pages.board import board_context
from server.pages.declared import Context, public_page
from server.pages.entries import measured_curves
from server.pages.queries import logged_curves
from server.people.declared import Routes
from web.board_table import board_query
from web.charts import BY_NAME, CHARTS, BoardChart
from web.charts.curves import MOST_EVALUATIONS
from web.charts.parts import names_of
from web.charts.tradeoffs import AGAINST, known_figures

MOST_SELECTED = 12
# Fields of a query that leave the official ranking of a division as it is, in any order.
OF_A_DIVISION = {"division", "round", "metric", "sort", "order", "limit", "cursor", "page"}
OF_A_CHART = {"against", "select"}
# A chart shows all entries that pass the filters, on every page of the board.
EVERY_ENTRY: dict[str, Any] = {"limit": 1_000_000, "cursor": None, "page": 1}


class ChartQuery(BoardQuery):
    """Query of a chart: a board's, the figure to set times `against`, and ids to `select`.

    `select` may be repeated or have several ids with commas between them. Unknown parameters are
    ignored, as on every page.
    """

    model_config = ConfigDict(extra="ignore")

    against: Literal["cost", "energy", "quality", "latency"] = "cost"
    select: list[str] = Field(default=[], max_length=MOST_SELECTED)

    @field_validator("select", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        ids = [part.strip() for text in value for part in str(text).split(",")]
        return list(dict.fromkeys(part for part in ids if part))

    @property
    def narrows_further(self) -> bool:
        """Whether it asks for something else than the official ranking of a division."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return not given.keys() <= OF_A_DIVISION | OF_A_CHART

    def as_text(self, **changes: Any) -> str:
        """Write the query string of the board's filters and the chart's own, with changes."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        board = board_query(given, limit=None)
        own = {name: given.get(name) for name in ("against", "select")} | changes
        chart = urlencode({k: v for k, v in own.items() if v}, doseq=True)
        return "&".join(part for part in (board, chart) if part)


ChartQueryDep = Annotated[ChartQuery, Query()]


View = dict[str, Any]
SHARED = ("facts", "dates", "benchmark", "time", "trainings", "lineage")  # with the board's page
RECORDS_OF_ALL = (
    "Records belong to the official ranking of all submissions. Only the filter by division "
    "applies here."
)


def chart_view(
    session: Session, benchmark: Benchmark, chart: BoardChart, query: ChartQuery
) -> View:
    """Collect the data for a chart."""
    target = benchmark_view(benchmark).model_dump(mode="json")["target"]
    view: View = {"target": target, "against": query.against}
    context = board_context(session, benchmark, query.model_copy(update=EVERY_ENTRY))
    board = context["board"]
    view |= {name: context[name] for name in SHARED}
    if chart.needs == "records":
        part = board["round"] if context["benchmark"]["published"] else None
        divisions = [
            one
            for one in list_records(session, benchmark).model_dump(mode="json")["divisions"]
            if query.division in (None, one["division"])
            and part in (None, round_of(benchmark, one["evidence"]))
        ]
        note = RECORDS_OF_ALL if query.narrows_further else None
        return view | {"divisions": divisions, "note": note}
    view["board"] = board
    if board["what_if"]:
        view["target"] = target | {"value": board["what_if"]["target"]}
    if chart.needs == "board":
        return view
    by_id = {entry["submission_id"]: entry for entry in board["entries"]}
    chosen = [by_id[name] for name in query.select if name in by_id]
    if not query.select:
        chosen = best_ranked(board["entries"], chart.selected)
    view["sets"] = _sets(session, benchmark, query, chosen)
    view["counts"] = context["benchmark"]["convergence_unit"]
    view["reference"] = _reference(session, benchmark) if chart.needs == "curves" else []
    return view


def best_ranked(entries: Sequence[View], most: int) -> list[View]:
    """Return at most so many ranked entries, the best first."""
    ranked = [entry for entry in entries if entry["rank"] is not None]
    return sorted(ranked, key=lambda entry: entry["rank"])[:most]


def _sets(
    session: Session, benchmark: Benchmark, query: ChartQuery, entries: Sequence[View]
) -> list[View]:
    """Pair entries with their runs: measured entries with measured runs, others with logs."""
    what_if = what_if_of(benchmark, query)
    ours = {e["submission_id"] for e in entries if is_entry(e) or e["evidence"] == "measured"}
    others = [e["submission_id"] for e in entries if e["submission_id"] not in ours]
    logged = logged_curves(session, others, MOST_EVALUATIONS)
    times: Mapping[str, Sequence[RunTime]] = {}
    if what_if is not None:
        divisions = {entry["submission_id"]: entry["division"] for entry in entries}
        times = times_at(session, divisions, what_if, benchmark)
    sets = []
    for entry in entries:
        name, factor = entry["submission_id"], 1.0
        if name in ours:
            runs = measured_curves(session, session.get_one(Submission, name))
        else:
            runs, factor = logged[name], convergence_factor(entry["tta_seconds"], entry)
        if what_if is not None:
            found = times.get(name, ())
            runs = [run | {"seconds": time.seconds} for run, time in zip(runs, found, strict=False)]
        scaled = [run | {"seconds": run["seconds"] and run["seconds"] * factor} for run in runs]
        sets.append({"entry": entry, "runs": scaled})
    return sets


def _reference(session: Session, benchmark: Benchmark) -> list[View]:
    """Average the reference by epoch at its batch size, with the band that judges from now on."""
    adopted = adopted_calibration(session, benchmark.sha256)
    judging = (
        benchmark if adopted is None else judging_benchmark(session, benchmark.sha256, adopted.id)
    )
    batch_size = judging.defaults().get("batch_size")
    known = [] if batch_size is None else judging.reference_runs_at(batch_size)
    if not known or batch_size is None:
        return []
    points = band_at(judging, judging.reference_runs, int(batch_size))
    band = {point.index: asdict(point) for point in points}
    nothing = {"lower": None, "upper": None}
    curves = zip_longest(*(run.quality for run in known))
    means = [mean([q for q in reached if q is not None]) for reached in curves]
    return [
        nothing | band.get(index, {}) | {"index": index, "mean": average}
        for index, average in enumerate(means, start=1)
    ]


router = Routes(include_in_schema=False)
CHOICES = 30


@router.read("/benchmarks/{benchmark_id}/charts/{name}.json", to_all=True)
def board_chart_figure(
    session: Session, benchmark_id: str, name: str, query: ChartQueryDep
) -> dict[str, Any]:
    """Answer the figure of a chart, of the entries that pass the board's filters."""
    chart, benchmark = find_chart(name), find_benchmark(benchmarks_of(session), benchmark_id)
    return chart.draw(chart_view(session, benchmark, chart, query)).figure


@public_page("/benchmarks/{benchmark_id}/charts", "board_chart.html", to_all=True)
def board_charts_page(session: Session, benchmark_id: str, query: ChartQueryDep) -> Context:
    """Show the first chart of a board, with links to the others."""
    return board_chart_page(session, benchmark_id, CHARTS[0].name, query)


@public_page("/benchmarks/{benchmark_id}/charts/{name}", "board_chart.html", to_all=True)
def board_chart_page(
    session: Session, benchmark_id: str, name: str, query: ChartQueryDep
) -> Context:
    """Show a chart on its page, with its choices and its figures as a table."""
    chart, benchmark = find_chart(name), find_benchmark(benchmarks_of(session), benchmark_id)
    view = chart_view(session, benchmark, chart, query)
    drawn = chart.draw(view)
    return {
        **{each: view[each] for each in SHARED},
        "chart": chart,
        "drawn": drawn,
        "table": drawn.table.without_empty_columns(),
        "board": view.get("board"),
        "divisions": view.get("divisions", ()),
        "note": view.get("note"),
        "choices": _choices(view) if chart.selected else [],
        "query": query.as_text(),
        "offered": _offered(view, query),
        "has_convergence": bool(benchmark.reference_runs),
        "against_links": [
            {"label": kind.label, "query": query.as_text(against=n), "is_shown": n == query.against}
            for n, kind in AGAINST.items()
            if chart.name == "pareto" and n in (query.against, *known_figures(view["board"]))
        ],
        "board_link": query.as_text(against=None, select=None),
        "filters": query.model_dump(mode="json", exclude_defaults=True),
    }


def _offered(view: View, query: ChartQuery) -> list[Context]:
    """The charts that a board has enough for, apart from its records, with their addresses."""
    board = view.get("board")
    if board is None:
        return []
    figures = known_figures(board)
    against = query.against if query.against in figures else next(iter(figures), None)
    links = {"pareto": query.as_text(against=against, select=None)}
    usual = query.as_text(against=None, select=None)
    return [
        {"name": each.name, "query": links.get(each.name, usual)}
        for each in CHARTS
        if each.needs != "records" and each.is_drawn(board)
    ]


def find_chart(name: str) -> BoardChart:
    """Find a chart by its name. Raises NotFoundError with the known names."""
    if name not in BY_NAME:
        raise NotFoundError(f"There is no chart {name!r}. There are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def _choices(view: Any) -> list[dict[str, Any]]:
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

"""What a chart of a board is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.calibration import band_at
from finishline.rules.ranking.lens import Lens, StoredRun, time_of_run
from finishline.rules.scoring.aggregate import mean
from server.benchmarks.calibrations import adopted_calibration, judging_benchmark
from server.benchmarks.schemas import benchmark_view
from server.boards.service import lens_of, list_records
from server.models import RunRow
from server.pages.board_context import board_context
from server.pages.chart_query import ChartQuery
from server.pages.queries import sampled_curve
from web.board_charts import BoardChart
from web.curves_chart import MOST_EVALUATIONS

View = dict[str, Any]
RECORDS_OF_ALL = (
    "Records are of the official ranking of all submissions; of the filters the division alone "
    "holds here."
)


def chart_view(
    session: Session, benchmark: Benchmark, chart: BoardChart, query: ChartQuery
) -> View:
    """The view that a chart reads, with no more of it than the chart needs."""
    target = benchmark_view(benchmark).model_dump(mode="json")["target"]
    view: View = {"target": target, "against": query.against}
    if chart.needs == "records":
        note = RECORDS_OF_ALL if query.narrows_further else None
        return view | {"divisions": _divisions(session, benchmark, query), "note": note}
    board = board_context(session, benchmark, query.of_whole_board())["board"]
    view |= {"board": board, "target": _lens_target(target, board)}
    if chart.needs == "board":
        return view
    chosen = _chosen(board["entries"], query.select, most=chart.selected)
    view["sets"] = _sets(session, benchmark, query, chosen)
    view["reference"] = _reference(session, benchmark) if chart.needs == "curves" else []
    return view


def _divisions(session: Session, benchmark: Benchmark, query: ChartQuery) -> list[View]:
    divisions = list_records(session, benchmark).model_dump(mode="json")["divisions"]
    return [d for d in divisions if query.division in (None, d["division"])]


def _lens_target(target: View, board: Mapping[str, Any]) -> View:
    return target | ({"value": board["lens"]["target"]} if board["lens"] else {})


def _chosen(entries: Sequence[View], selected: Sequence[str], *, most: int) -> list[View]:
    """The entries that were selected, in that order; else the best ranked."""
    if selected:
        by_id = {entry["submission_id"]: entry for entry in entries}
        return [by_id[submission_id] for submission_id in selected if submission_id in by_id]
    return best_ranked(entries, most)


def best_ranked(entries: Sequence[View], most: int) -> list[View]:
    """At most so many ranked entries, the best first."""
    ranked = [entry for entry in entries if entry["rank"] is not None]
    return sorted(ranked, key=lambda entry: entry["rank"])[:most]


def _sets(
    session: Session, benchmark: Benchmark, query: ChartQuery, entries: Sequence[View]
) -> list[View]:
    """Each entry with its runs: their seconds on the scale of the board, and their curves."""
    lens = lens_of(benchmark, query)
    sets: dict[str, View] = {
        entry["submission_id"]: {"entry": entry, "runs": []} for entry in entries
    }
    # Curves are long, so one is in memory at a time.
    for run in session.scalars(
        select(RunRow)
        .where(RunRow.submission_id.in_(sets))
        .order_by(RunRow.submission_id, RunRow.index)
        .options(undefer(RunRow.curve))
        .execution_options(yield_per=1)
    ):
        one = sets[run.submission_id]
        one["runs"].append(_run(run, one["entry"], lens, benchmark))
    return list(sets.values())


def _run(run: RunRow, entry: View, lens: Lens | None, benchmark: Benchmark) -> View:
    seconds = run.tta_seconds
    if lens is not None:
        stored = StoredRun(run.file, run.reached, run.curve)
        seconds = time_of_run(stored, lens, benchmark, division=entry["division"]).seconds
    tta, raw = entry["tta_seconds"], entry["raw_tta_seconds"]
    factor = tta / raw if tta and raw else 1.0
    return {
        "file": run.file,
        "seconds": None if seconds is None else seconds * factor,
        "evaluations": len(run.curve),
        "best_quality": run.best_quality,
        "curve": sampled_curve(run.curve, MOST_EVALUATIONS),
    }


def _reference(session: Session, benchmark: Benchmark) -> list[View]:
    """Mean and band of the reference after each epoch, as whatever is planned now is judged by.

    At the reference's own batch size; empty where nobody has trained it to the end.
    """
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

"""Build template contexts from the views of the API, and places on boards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import place_words
from finishline.rules.statistics.aggregate import mean
from server.base.database import benchmarks_of
from server.base.models import PoolRun, RunRow, Submission, Verification
from server.base.standing import IN_SHORT, published_verification
from server.benchmarks.definitions import definition
from server.benchmarks.endpoints import benchmark_view
from server.boards.board import RankedBoard, query_of, ranked_board
from server.boards.rows import PlacedRow
from server.boards.submissions import whole_view
from server.pages.board import times_of, times_of_board
from server.pages.declared import Context
from server.pages.entries import measured_curves
from server.verifications.views import line, view
from web.charts.parts import even_sample
from web.compare import neighbour_names
from web.formats import SECONDS, TimeFormat
from web.names import hardware_words

FURTHER = 2


def named_entry(placed: PlacedRow) -> Context:
    """Return a board entry with the name of its system, and its hardware in words."""
    system = placed["system"]
    return placed.entry() | {"hardware": hardware_words(system), "system": system["name"]}


def place_of(session: Session, benchmark: Benchmark, submission: Submission) -> Context | None:
    """Find a submission's place, and the leader and neighbours. None if not on the board."""
    board = ranked_board(session, benchmark, query_of(benchmark, submission))
    found = board.find(submission.id)
    if found is None:
        return None
    at, ranked = board.order.position(submission.id), board.order.numbered
    beside = ((0, "the first"), (at - 1, "the one before"), (at + 1, "the next"))
    others: dict[int, Context] = {}
    for index, why in beside if at < ranked else ():
        if 0 <= index < ranked and index != at and index not in others:
            others[index] = named_entry(board.page(index, index + 1)[0]) | {"why": why}
    runs = select(func.count()).where(PoolRun.pool_id == submission.pool_id)
    return named_entry(found) | {
        "ranked": ranked,
        "others": list(others.values()),
        "around": _around(session, benchmark, board, found),
        "pool_runs": session.scalar(runs) or 0,
    }


def _around(
    session: Session, benchmark: Benchmark, board: RankedBoard, found: PlacedRow
) -> list[Context]:
    names = [place.submission_id for place in board.order.places[: board.order.numbered]]
    around = [found.entry()]
    if found["submission_id"] in names:
        at = names.index(found["submission_id"])
        near = (board.find(name) for name in names[max(0, at - FURTHER) : at + FURTHER + 1])
        around = [placed.entry() for placed in near if placed is not None]
    rows = _with_settings(session, around, benchmark)
    named = zip(around, neighbour_names(rows), strict=True)
    time = times_of_board(benchmark, board)
    return [_timed(entry, name, time) for entry, name in named]


def _with_settings(
    session: Session, around: Sequence[Context], benchmark: Benchmark
) -> list[Context]:
    ids = [entry["submission_id"] for entry in around]
    chosen = select(Submission.id, Submission.hyperparameters).where(Submission.id.in_(ids))
    settings = {row.id: row.hyperparameters for row in session.execute(chosen)}
    return [
        entry
        | {"runs": (), "hyperparameters": settings.get(entry["submission_id"]) or {}}
        | {"benchmark": benchmark.benchmark_id}
        for entry in around
    ]


def _timed(entry: Context, name: str, time: TimeFormat) -> Context:
    low, high = time.ends(entry)
    is_latency = entry["latency_ms"] is not None and entry["tta_seconds"] is None
    return {
        "submission_id": entry["submission_id"],
        "place": place_words(entry),
        "name": name,
        "figure": entry["latency_ms"] / 1000 if is_latency else time.figure(entry),
        "low": low,
        "high": high,
    }


# Of all runs of a submission together.
MOST_EVALUATIONS = 5_000
FEWEST_OF_A_RUN = 20
MOST_CHECKS = 10


def submission_context(session: Session, submission: Submission) -> Context:
    """Describe a submission, and the benchmark it was scored under."""
    benchmark = definition(session, submission.benchmark_sha256)
    shown = whole_view(session, submission)
    return {
        "submission": shown.model_dump(mode="json"),
        "benchmark": benchmark_view(benchmark).model_dump(mode="json"),
        "time": times_of(
            session, submission.benchmark_id, submission.division, submission.evidence
        ),
    }


def brief(submission: Submission) -> Context:
    """Describe a submission as lists of others name it."""
    names = ("id", "kind", "model", "system", "submitter", "display_name", "evidence")
    found = {name: getattr(submission, name) for name in names}
    return found | {"benchmark": submission.benchmark_id}


def submission_page_context(session: Session, submission: Submission) -> Context:
    """Describe a submission, its place, and its latest verifications with the published one."""
    published = published_verification(submission)
    benchmark = benchmarks_of(session).get(submission.benchmark_id)
    wanted = {each.id for each in submission.verifications[-MOST_CHECKS:]}
    wanted |= set() if published is None else {published.id}
    checks = session.scalars(
        select(Verification)
        .where(Verification.id.in_(wanted))
        .order_by(Verification.created_at.desc())
        .options(*IN_SHORT)
    ).all()
    return submission_context(session, submission) | {
        "checks": [line(session, each).model_dump(mode="json") for each in checks],
        "measured": measured_beside(published.report) if published is not None else None,
        # None also if the benchmark was removed.
        "place": None if benchmark is None else place_of(session, benchmark, submission),
    }


def ranking_curves(session: Session, submission: Submission) -> list[Context]:
    """Return the runs that make a submission's figure: measured ones, or its logs' runs."""
    if submission.evidence == "measured":
        return measured_curves(session, submission)
    return submission_with_curves(session, submission)


def submission_with_curves(session: Session, submission: Submission) -> list[Context]:
    """Return a submission's runs with as many evaluations as a page shows, evenly spaced."""
    if submission.trained_with == "package":
        return measured_curves(session, submission)
    most = max(FEWEST_OF_A_RUN, MOST_EVALUATIONS // max(1, len(submission.runs)))
    return logged_curves(session, [submission.id], most)[submission.id]


def logged_curves(session: Session, ids: Sequence[str], most: int) -> dict[str, list[Context]]:
    """Read the runs of logs by submission. Curves are large, so one is in memory at a time."""
    found: dict[str, list[Context]] = {name: [] for name in ids}
    columns = (RunRow.index, RunRow.file, RunRow.tta_seconds, RunRow.best_quality, RunRow.curve)
    rows = (
        select(RunRow.submission_id, *columns)
        .where(RunRow.submission_id.in_(ids))
        .order_by(RunRow.submission_id, RunRow.index)
        .execution_options(yield_per=1)
    )
    for run in session.execute(rows):
        found[run.submission_id].append(
            {
                "index": run.index,
                "file": run.file,
                "seconds": run.tta_seconds,
                "best_quality": run.best_quality,
                "evaluations": len(run.curve),
                "curve": sampled_curve(run.curve, most),
            }
        )
    return found


def sampled_curve(curve: Sequence[Sequence[Any]], most: int) -> list[Context]:
    """Pick at most so many evaluations of a stored curve, evenly spaced, with places from 1."""
    return [
        {"index": n, "epoch": epoch, "samples": samples, "seconds": seconds, "quality": quality}
        for n, (epoch, seconds, quality, samples, *_) in even_sample(
            list(enumerate(curve, start=1)), most
        )
    ]


def title_of(session: Session, benchmark_id: str) -> str:
    """Return the title of a benchmark, or its id if it was removed."""
    benchmark = benchmarks_of(session).get(benchmark_id)
    return benchmark_id if benchmark is None else benchmark.title


def verification_context(session: Session, verification: Verification) -> Context:
    """Describe a verification with its submission and a head-to-head's holder, if any."""
    shown = view(session, verification).model_dump(mode="json")
    checked, against = (
        {} if each is None else submission_context(session, each)
        for each in (verification.submission, verification.against)
    )
    return {
        "verification": shown,
        "submission": checked.get("submission"),
        "against": against.get("submission"),
        # Seconds, as in the messages, even if the board has minutes.
        "time": replace(checked.get("time", SECONDS), unit="s"),
        "benchmark_title": title_of(session, shown["benchmark"]),
    }


Table = Mapping[str, Any]


def measured_beside(report: Table | None) -> dict[str, Any] | None:
    """Read precision, energy, power and memory of a report: means of runs, and most memory."""
    if report is None:
        return None
    runs = [run["telemetry"] for run in report["runs"] if run.get("telemetry")]
    audit = report.get("precision")
    means = ("energy_joules", "samples_per_joule", "power_mean_watts")
    figures: dict[str, Any] = {}
    for name in (*means, "memory_peak_bytes", "accelerator_memory_peak_bytes"):
        known = [run[name] for run in runs if run.get(name) is not None]
        figures[name] = (mean(known) if name in means else max(known)) if known else None
    figures["precision"] = audit["lowest"] if audit else None
    figures["precision_scope"] = audit.get("scope") if audit else None
    if all(value is None for value in figures.values()):
        return None
    sources = sorted({run["energy_source"] for run in runs if run.get("energy_source")})
    system = report["system"]
    return figures | {
        "energy_sources": sources,
        "runs": len(runs),
        "hardware_class": system.get("hardware_class"),
        "worker": system.get("worker"),
    }

"""Show the first page, and results across boards: of a round, an accelerator, a submitter."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Evidence, Round, ranked_seconds
from finishline.rules.text import did_you_mean
from server.base.board_versions import cached_for_board
from server.base.database import benchmarks_of
from server.base.errors import NotFoundError
from server.base.standing import find_verification
from server.benchmarks.definitions import rounds_of
from server.benchmarks.endpoints import NO_SUBMISSIONS, Counts, benchmark_view, count_submissions
from server.boards.board import board_results
from server.boards.live import read_race
from server.boards.records import DivisionRecords, first_row, lowest_records, records_by_benchmark
from server.pages.board import times_fitting, times_of
from server.pages.declared import Context, public_page
from server.submissions.lists import SubmissionQuery, list_submissions
from server.verifications.views import VerificationLine, latest_verdicts, live_verifications, view
from web.charts.parts import Chart
from web.charts.verification import counted_pairs, head_to_head_chart, replay_chart
from web.formats import SECONDS, TimeFormat, time_format
from web.home_words import OPEN, Shown, families, round_matrix
from web.names import named


def round_views(benchmark: Benchmark, counts: Counts) -> list[dict[str, Any]]:
    """Describe a benchmark for each `round` of its board. An empty archive is left out."""
    return [
        view_in_round(benchmark, counts, name)
        for name in rounds_of(benchmark)
        if name != "archive" or counts.published
    ]


def view_in_round(benchmark: Benchmark, counts: Counts, name: Round | None) -> dict[str, Any]:
    """Describe a benchmark with the submissions of one round of its board."""
    view = benchmark_view(benchmark, counts).model_dump(mode="json") | {"round": name}
    if name is None:
        return view
    published = sum(counts.published.values())
    inference = sum(n for (kind, _), n in counts.published.items() if kind == "inference")
    if name == "open":
        published, inference = view["submissions"] - published, counts.inference - inference
    return view | {"submissions": published, "inference_submissions": inference}


LATEST = 6
RACES = ("replay", "entry", "head_to_head")
CLEAR = ("verified", "challenger_faster", "holder_faster")
EVIDENCE_OF_ROUND: dict[Round | None, tuple[Evidence, ...]] = {
    "open": ("measured",),
    "archive": ("published",),
    None: ("measured", "published"),
}
RoundQuery = Annotated[str | None, Query(max_length=40)]


@public_page("/", "home.html", to_all=True)
def home(session: Session, round: RoundQuery = None) -> Context:  # noqa: A002  the field's word
    """Show a live or recent run, first places by round, and the latest verdicts."""
    counts = count_submissions(session, benchmarks_of(session))
    live, live_count = live_verifications(session, limit=LATEST)
    verdicts = latest_verdicts(session, limit=LATEST)
    running = [one for one in live if one.run is not None]
    clear = [one for one in verdicts if one.outcome in CLEAR]
    clear.sort(key=lambda one: one.outcome != "challenger_faster")
    rows = _rows(session, counts)
    times = {row["id"]: row["time"] for row in rows if row["round"] != "archive"}
    return {
        "benchmarks": rows,
        "units": {name: one.target.unit for name, one in benchmarks_of(session).items()},
        "titles": {name: one.title for name, one in benchmarks_of(session).items()},
        "round": round,
        "race": _race(session, times, [*clear, *running, *verdicts]),
        "live": live,
        "live_count": live_count,
        "verdicts": verdicts,
    }


def _rows(session: Session, counts: dict[str, Counts]) -> list[dict[str, Any]]:
    records = records_by_benchmark(session, benchmarks_of(session))
    held = {name: lowest_records(found) for name, found in records.items()}
    rows = []
    for name, benchmark in benchmarks_of(session).items():
        count, lists = counts.get(name, NO_SUBMISSIONS), held.get(name, {})
        for row in round_views(benchmark, count):
            evidence = EVIDENCE_OF_ROUND[row["round"]]
            found = next((lists[each] for each in evidence if each in lists), None)
            rows.append(row | _row(benchmark, count, found))
    return rows


def _row(benchmark: Benchmark, count: Counts, held: DivisionRecords | None) -> dict[str, Any]:
    records = [] if held is None else held.records
    times: list[float | None] = [record.tta_seconds for record in records]
    if held is not None and held.evidence == "published":
        times.append(count.slowest_published.get(held.division))
    time = times_fitting(benchmark, times)
    shown = [record.model_dump() for record in records]
    first = None if held is None else first_row(held).model_dump()
    division = None if held is None else held.division
    trust = getattr(benchmark.trainings, "trust", None)
    return {"records": shown, "first": first, "time": time, "held": division, "trust": trust}


def _race(
    session: Session, times: Mapping[str, TimeFormat], lines: Iterable[VerificationLine]
) -> dict[str, Any] | None:
    """Find the first verification with a line in its chart: two evaluations, or two sides."""
    for line in lines:
        if line.kind not in RACES:
            continue
        chart = _chart(session, times, line)
        if any(len(trace["x"]) > 1 for trace in chart.figure["data"]):
            found = find_verification(session, line.id)
            holder = "first place" if found.against is None else found.against.model
            division = None if found.submission is None else found.submission.division
            return {"line": line, "chart": chart, "holder": holder, "division": division}
    return None


def _chart(session: Session, times: Mapping[str, TimeFormat], line: VerificationLine) -> Chart:
    """Draw a verification's curves or pairs, cached by board version once it has ended."""

    def draw() -> Chart:
        verification = find_verification(session, line.id)
        shown = view(session, verification).model_dump(mode="json")
        time = times.get(line.benchmark, SECONDS)
        if line.outcome is not None and shown["head_to_head"]:
            return head_to_head_chart(counted_pairs(shown), time)
        race = read_race(session, verification).model_dump(mode="json")
        return replay_chart(shown, race, time)

    if line.outcome is None:
        return draw()
    return cached_for_board(session, line.benchmark, f"race {line.id}", draw)


MOST_SHOWN = 200
MOST_SYSTEMS = 60


@public_page("/rounds/{round_id}", "round.html", to_all=True)
def round_page(
    session: Session,
    round_id: str,
    division: Annotated[str | None, Query(max_length=20)] = None,
    show: Shown | None = None,
) -> Context:
    """Show a round in one division: its systems by its benchmarks, or the first of each board."""
    counts = count_submissions(session, benchmarks_of(session))
    views = [
        view
        for name, one in benchmarks_of(session).items()
        for view in round_views(one, counts.get(name, NO_SUBMISSIONS))
    ]
    family = next((one for one in families(views) if one.round_id == round_id), None)
    if family is None:
        raise NotFoundError(f"There is no round {round_id[:100]!r}.")
    benchmarks = [*family.rows, *family.waiting]
    shown = {(b["id"], b["round"]) for b in benchmarks}
    every_result = board_results(session, [benchmarks_of(session)[b["id"]] for b in benchmarks])
    results = [r for r in every_result if (r["benchmark"], r["round"]) in shown]
    divisions = sorted({result["division"] for result in results})
    numbered = Counter(result["division"] for result in results if result["rank"])
    most = max(divisions, key=lambda name: numbered[name], default=None)
    chosen = division if division in divisions else most
    rows = [result for result in results if result["division"] == chosen]
    matrix = round_matrix(benchmarks, rows)
    show = show or ("minutes" if matrix.is_full else "first")
    # A matrix of a round has one unit. Of this server's own boards each has its own.
    every = time_format(ranked_seconds(result) for result in results)
    return {
        "family": family,
        "benchmarks": benchmarks,
        "matrix": matrix,
        "boards": {
            one["id"]: [row for row in rows if row["benchmark"] == one["id"]]
            for one in matrix.benchmarks
        },
        "times": {
            one["id"]: times_of(session, one["id"], chosen, EVIDENCE_OF_ROUND[one["round"]][0])
            if round_id == OPEN or show == "first"
            else every
            for one in matrix.benchmarks
        },
        "most": MOST_SYSTEMS,
        "divisions": divisions,
        "division": chosen,
        "show": show,
    }


@public_page("/accelerators/{accelerator}", "results.html", to_all=True)
def accelerator_page(session: Session, accelerator: str) -> Context:
    """Show the results with one accelerator, in any number."""

    def fits(result: dict[str, Any]) -> bool:
        model = result["accelerator"].model
        return model is not None and model.casefold() == accelerator.casefold()

    return _results(session, "accelerator", accelerator, fits)


@public_page("/submitters/{submitter:path}", "results.html", to_all=True)
def submitter_page(session: Session, submitter: str) -> Context:
    """Show the results of one submitter."""
    return _results(session, "submitter", submitter, lambda r: r["submitter"] == submitter)


def _results(
    session: Session, kind: str, name: str, fits: Callable[[dict[str, Any]], bool]
) -> Context:
    every = board_results(session, benchmarks_of(session).values())
    found = [result for result in every if fits(result)]
    if not found and not list_submissions(session, SubmissionQuery(**{kind: name[:100]})).rows:
        known = {r["accelerator"].model if kind == "accelerator" else r["submitter"] for r in every}
        meant = did_you_mean(name, [one for one in known if one])
        raise NotFoundError(f"There is no result of {kind} {name[:100]!r}{meant}.")
    title = name
    if found:
        first = found[0]
        is_submitter = kind == "submitter"
        title = named(name, first["display_name"]) if is_submitter else first["accelerator"].model
    boards = {(result["benchmark"], result["division"], result["evidence"]) for result in found}
    return {
        "kind": kind,
        "name": title,
        "results": found,
        "most": MOST_SHOWN,
        "benchmarks": {
            one.benchmark_id: benchmark_view(one) for one in benchmarks_of(session).values()
        },
        "times": {board: times_of(session, *board) for board in boards},
    }

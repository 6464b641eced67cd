"""Show submissions side by side, and two verifications of one."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from finishline.rules.ranking import is_entry
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from server.base.database import benchmarks_of, find_row
from server.base.models import Submission, Verification
from server.base.standing import find_verification
from server.benchmarks.endpoints import count_submissions
from server.boards.board import query_of, ranked_board
from server.boards.compare import FEWEST, MOST, compare_submissions, get_verification_comparison
from server.pages.board import times_of
from server.pages.declared import Context, public_page
from server.pages.queries import (
    brief,
    measured_beside,
    named_entry,
    ranking_curves,
    submission_context,
    title_of,
)
from server.verifications.views import line
from web.compare import compare_link
from web.formats import SECONDS

MOST_OFFERED = 300
MOST_BOARDS = 8
MOST_READ = 20  # More ids are too many to compare, so they are not looked up.


def read_ids(texts: Sequence[str]) -> list[str]:
    """Read ids from texts of a form or a link, each once, also from pasted addresses."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    ids = [part.rstrip("/").rsplit("/", 1)[-1].split("?")[0].split("#")[0] for part in parts]
    return list(dict.fromkeys(one for one in ids if one))


def comparison_context(session: Session, ids: Sequence[str]) -> tuple[int, Context]:
    """Return the status and the context of compare.html. A problem leaves out the comparison."""
    found = [session.get(Submission, one) for one in ids[:MOST_READ]]
    chosen = [submission for submission in found if submission is not None]
    unknown = [one for one, row in zip(ids, found, strict=False) if row is None]
    status, problem = _problem(ids, unknown, chosen)
    context: Context = {
        "ids": list(ids),
        "unknown": unknown,
        "chosen": [
            brief(one) | {"benchmark_title": title_of(session, one.benchmark_id)} for one in chosen
        ],
        "problem": problem,
        "comparison": None,
        "submissions": [],
        "ranks": {},
        "most": MOST,
        **_board_beside(session, chosen),
    }
    complete = problem is None and len(ids) >= FEWEST
    return status, context | (_compared(session, chosen) if complete else {})


def _problem(
    ids: Sequence[str], unknown: Sequence[str], chosen: Sequence[Submission]
) -> tuple[int, str | None]:
    if unknown:
        names = ", ".join(repr(one) for one in unknown)
        return 404, f"There is no submission {names}: remove it, or correct the id."
    if len(ids) > MOST:
        return 422, (
            f"These are {len(ids)} submissions. At most {MOST} fit side by side: remove some."
        )
    boards = sorted({submission.benchmark_id for submission in chosen})
    if len(boards) > 1:
        return 422, (
            f"These are submissions of {' and '.join(boards)}: only those of one benchmark can be "
            "compared. Remove the others."
        )
    if len({submission.kind for submission in chosen}) > 1:
        return 422, (
            "Trainings and inference entries have no figure in common. Remove one of the two kinds."
        )
    return 200, None


def _board_beside(session: Session, chosen: Sequence[Submission]) -> Context:
    if not chosen or chosen[0].benchmark_id not in benchmarks_of(session):
        return {"pick": [], "time": SECONDS}
    first, there = chosen[0], {submission.id for submission in chosen}
    benchmark = benchmarks_of(session)[first.benchmark_id]
    everything = query_of(benchmark, first).model_copy(update={"division": None})
    every_row = ranked_board(session, benchmark, everything).page()
    others = (named_entry(row) for row in every_row if row["submission_id"] not in there)
    time = times_of(session, first.benchmark_id, first.division, first.evidence)
    return {"pick": list(islice(others, MOST_OFFERED)), "time": time}


def _compared(session: Session, chosen: Sequence[Submission]) -> Context:
    contexts = [submission_context(session, one) for one in chosen]
    submissions = [
        _with_findings(session, one, context) for one, context in zip(chosen, contexts, strict=True)
    ]
    ids = ",".join(one.id for one in chosen)
    comparison = compare_submissions(session, ids).model_dump(mode="json")
    for one, shown in zip(comparison["submissions"], submissions, strict=True):
        for end in ("tta_low_seconds", "tta_high_seconds"):
            one[end] = shown["result"].get(end)
    return {
        "comparison": comparison,
        "submissions": submissions,
        "ranks": {one["id"]: one["rank"] for one in submissions},
        "benchmark": contexts[0]["benchmark"],
    }


def _with_findings(session: Session, submission: Submission, context: Context) -> Context:
    shown: Context = context["submission"]
    published = shown["published_verification"]
    report = session.get_one(Verification, published).report if published else None
    runs = ranking_curves(session, submission)
    is_measured = is_entry(shown) or shown["evidence"] == "measured"
    found = {"measured": measured_beside(report), "curves": runs}
    return shown | found | (_of_measured(context, runs) if is_measured else {})


def _of_measured(context: Context, runs: Sequence[Context]) -> Context:
    shown, target = context["submission"], context["benchmark"]["target"]
    better = max if target["direction"] == "higher" else min
    times = [run["seconds"] for run in runs if run["seconds"] is not None]
    qualities = [run["best_quality"] for run in runs if run["best_quality"] is not None]
    seconds = shown["measured_seconds"]
    result = {
        "tta_seconds": seconds,
        "raw_tta_seconds": seconds,
        "tta_low_seconds": shown["measured_low_seconds"],
        "tta_high_seconds": shown["measured_high_seconds"],
        "cv_percent": coefficient_of_variation_percent(times),
        "reached": len(times),
        "started": len(runs),
        "best_quality": better(qualities, default=None),
    }
    return {"result": shown["result"] | result}


IdsDep = Annotated[list[str] | None, Query(max_length=100)]


def boards_to_compare(session: Session) -> list[tuple[str, str, int]]:
    """List id and title of boards with two trainings or more, those with the most first."""
    counts = count_submissions(session, benchmarks_of(session))
    found = [(name, one.train) for name, one in counts.items() if one.train >= FEWEST]
    most = sorted(found, key=lambda board: -board[1])[:MOST_BOARDS]
    return [(name, benchmarks_of(session)[name].title, count) for name, count in most]


@public_page("/compare", "compare.html")
def compare_page(
    session: Session, ids: IdsDep = None, submissions: IdsDep = None
) -> Context | Response:
    """Show a comparison, or the form with its problem. Lists of ids redirect to one address."""
    wanted = read_ids([*(ids or ()), *(submissions or ())])
    if wanted and ids != [",".join(wanted)]:
        return RedirectResponse(compare_link(wanted), status_code=303)
    status, context = comparison_context(session, wanted)
    boards = [] if wanted else boards_to_compare(session)
    return context | {"status": status, "boards": boards}


@public_page("/verifications/compare", "verification_comparison.html")
def verification_comparison_page(session: Session, first: str, second: str) -> Context:
    """Show two verdicts with their replays, systems and significant differences."""
    comparison = get_verification_comparison(session, first, second)
    submission = find_row(session, Submission, comparison.submission_id)
    context = submission_context(session, submission)
    sides = [line(session, find_verification(session, each)) for each in (first, second)]
    own = {name: context[name] for name in ("submission", "benchmark", "time")}
    return own | {"comparison": comparison, "sides": sides}

"""Lists of submissions and verifications with filters, and the search over everything named."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Query, Request
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, Submission, User
from server.base.paging import Page
from server.base.services import Services
from server.pages.board import times_of
from server.pages.declared import Context, page, public_page, read_query
from server.submissions.lists import (
    ListQuery,
    SubmissionQuery,
    VerificationQuery,
    list_submissions,
    list_verifications,
)
from web.formats import TimeFormat
from web.names import accelerator_of_system, named, row_name

# Of the latest submissions: a search is no report.
MOST_SEARCHED = 2_000
MOST_FOUND = 10
CONSOLE = "/console/submissions"


@public_page("/submissions", "submissions.html")
def submissions_page(session: Session, services: Services, request: Request) -> Context:
    """Every submission that a viewer may see, newest first."""
    wanted = read_query(SubmissionQuery, request)
    found = list_submissions(session, wanted)
    return _context(session, services, found, wanted, request.url.path)


# The same list with buttons that act on marked rows.
page(CONSOLE, "submissions.html", role="organiser")(submissions_page)


@public_page("/verifications", "verifications.html")
def verifications_page(session: Session, services: Services, request: Request) -> Context:
    """Every verification that a viewer may see, newest first."""
    wanted = read_query(VerificationQuery, request)
    found = list_verifications(session, wanted)
    return _context(session, services, found, wanted, request.url.path)


def _context(
    session: Session, services: Services, page: Page, wanted: ListQuery, address: str
) -> Context:
    filters = wanted.model_dump(mode="json", exclude={"cursor"})
    chosen = {name: value for name, value in filters.items() if value is not None}
    older = None
    if page.next_cursor is not None:
        older = f"{address}?{urlencode(chosen | {'cursor': page.next_cursor})}"
    times = cache(partial(times_of, session, services))
    return {
        "rows": [_row(times, row) for row in page.rows],
        "filters": filters,
        "older": older,
        "is_filtered": bool(chosen),
        "newest": None if wanted.cursor is None else f"{address}?{urlencode(chosen)}",
        "benchmarks": sorted(services.benchmarks),
        "address": address,
    }


def _row(times: Callable[[str, str, str], TimeFormat], row: Any) -> Context:
    shown = dict(row._mapping)
    shown["moment"] = shown["moment"].isoformat()
    if shown["division"] is not None:
        evidence = shown.get("evidence", "measured")
        time = times(shown["benchmark"], shown["division"], evidence)
        shown["time"] = None
        if "tta_seconds" in shown:
            shown["time"] = None if time.figure(shown) is None else time.ranked(shown)
    return shown


Words = Annotated[str, Query(max_length=100)]


@public_page("/search", "search.html")
def search_page(session: Session, services: Services, q: Words = "") -> Context:
    """Benchmarks, submitters, accelerators, systems and submissions whose names have the words."""
    words = " ".join(q.split())
    if not words:
        return {"words": words, "groups": {}, "near": []}
    names = _names(session, services)
    found = {
        group: [each for each in members if words.casefold() in each[0].casefold()]
        for group, members in names.items()
    }
    found["Submissions"] = _submissions(session, words)
    groups = {name: members[:MOST_FOUND] for name, members in found.items() if members}
    every = () if groups else [each[0] for members in names.values() for each in members]
    return {"words": words, "groups": groups, "near": near_names(words, every)}


def near_names(words: str, names: Iterable[str]) -> list[str]:
    """Up to five names that the words may have meant. One with an id in brackets by either."""
    known: dict[str, str] = {}
    for name in names:
        title, _, rest = name.casefold().partition(" (")
        known |= dict.fromkeys((title, rest.removesuffix(")")), name)
    close = get_close_matches(words.casefold(), known, n=5)
    return list(dict.fromkeys(known[one] for one in close))


def _names(session: Session, services: Services) -> dict[str, list[tuple[str, str]]]:
    """Names with their pages, of the latest submissions on a board for all but benchmarks."""
    latest = session.execute(
        select(SUBMITTER, DISPLAY_NAME, Submission.system)
        .join(User, User.id == Submission.user_id)
        .outerjoin(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(Submission.withdrawn_at.is_(None), Submission.embargoed.is_(False))
        .order_by(Submission.submitted_at.desc())
        .limit(MOST_SEARCHED)
    ).all()
    models = {accelerator_of_system(row.system).model for row in latest}
    benchmarks = services.benchmarks.values()
    return {
        "Benchmarks": [
            (f"{each.title} ({each.benchmark_id})", f"/benchmarks/{each.benchmark_id}")
            for each in sorted(benchmarks, key=lambda each: each.title)
        ],
        "Submitters": _pages(
            {row.submitter: named(row.submitter, row.display_name) for row in latest}, "submitters"
        ),
        "Accelerators": _pages({model: model for model in models if model}, "accelerators"),
    }


def _pages(names: dict[str, str], folder: str) -> list[tuple[str, str]]:
    return [(names[name], f"/{folder}/{quote(name, safe='')}") for name in sorted(names)]


def _submissions(session: Session, words: str) -> list[tuple[str, str]]:
    """Submissions by id, model or system, of the latest ones."""
    latest = select(Submission.id).order_by(Submission.submitted_at.desc()).limit(MOST_SEARCHED)
    system = Submission.system["name"].as_string()
    like = [
        func.lower(column).contains(words.lower(), autoescape=True)
        for column in (Submission.model, system)
    ]
    rows = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.system,
            Submission.evidence,
            SUBMITTER,
            DISPLAY_NAME,
        )
        .join(User, User.id == Submission.user_id)
        .outerjoin(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(or_(Submission.id == words, Submission.id.in_(latest) & or_(*like)))
        .order_by(Submission.submitted_at.desc())
        .limit(MOST_FOUND)
    )
    return [
        (f"{row_name(dict(row._mapping))}: {row.model}", f"/submissions/{row.id}") for row in rows
    ]

"""Show lists of submissions and verifications with filters, and the search."""

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Query, Request
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.base.database import benchmarks_of
from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, Submission, User
from server.base.paging import Page
from server.boards.submissions import boards_of
from server.pages.board import times_of
from server.pages.declared import Context, page, public_page, read_query
from server.submissions.lists import (
    ListQuery,
    Source,
    SubmissionQuery,
    VerificationQuery,
    count_sources,
    find_submissions,
    list_submissions,
    list_verifications,
)
from web.names import accelerator_of_system, named

# Of the latest submissions.
MOST_SEARCHED = 2_000
MOST_FOUND = 10
CONSOLE = "/console/submissions"
SOURCES: dict[Source, str] = {"here": "Sent here", "archives": "Published archives"}


@public_page("/submissions", "submissions.html")
def submissions_page(session: Session, request: Request) -> Context:
    """Show submissions for a viewer, newest first: of people here, or of archives."""
    wanted = read_query(SubmissionQuery, request)
    counts = count_sources(session, wanted)
    if wanted.source is None and wanted.accelerator is None:
        source = "here" if counts["here"] or not counts["archives"] else "archives"
        wanted = wanted.model_copy(update={"source": source})
    found, address = list_submissions(session, wanted), request.url.path
    chosen = wanted.model_dump(mode="json", exclude={"cursor"}, exclude_none=True)
    sources = [
        {
            "words": words,
            "count": counts[name],
            "address": f"{address}?{urlencode(chosen | {'source': name})}",
            "is_shown": wanted.source == name,
        }
        for name, words in SOURCES.items()
    ]
    return _context(session, found, wanted, address) | {"sources": sources}


# The same list with buttons that act on marked rows.
page(CONSOLE, "submissions.html", role="organiser")(submissions_page)


@public_page("/verifications", "verifications.html")
def verifications_page(session: Session, request: Request) -> Context:
    """Show every verification for a viewer, newest first."""
    wanted = read_query(VerificationQuery, request)
    found = list_verifications(session, wanted)
    return _context(session, found, wanted, request.url.path)


def _context(session: Session, page: Page, wanted: ListQuery, address: str) -> Context:
    filters = wanted.model_dump(mode="json", exclude={"cursor"})
    chosen = {name: value for name, value in filters.items() if value is not None}
    older = f"{address}?{urlencode(chosen | {'cursor': page.next_cursor})}"
    rows = _Rows(session)
    return {
        "rows": [rows.shown(row) for row in page.rows],
        "filters": filters,
        "older": None if page.next_cursor is None else older,
        "is_filtered": bool(chosen.keys() - {"source"}),
        "newest": None if wanted.cursor is None else f"{address}?{urlencode(chosen)}",
        "titles": titles_of(session),
        "address": address,
    }


class _Rows:
    def __init__(self, session: Session) -> None:
        self._times = cache(partial(times_of, session))
        self._board_of = boards_of(session, benchmarks_of(session))

    def shown(self, row: Any) -> Context:
        """Show a row with its place, and its time in the unit of its board."""
        shown = dict(row._mapping)
        shown["moment"] = shown["moment"].isoformat()
        if "tta_seconds" in shown:
            time = self._times(row.benchmark, row.division, row.evidence)
            shown["time"] = None if time.figure(shown) is None else time.ranked(shown)
            published = row.submitted_on
            shown["submitted_on"] = None if published is None else published.isoformat()
            board = None if row.withdrawn_at is not None else self._board_of(row)
            placed = None if board is None else board.find(row.id)
            shown |= {"rank": None, "is_holder": False, "ranked": 0}
            if board is not None and placed is not None:
                shown |= {"rank": placed["rank"], "is_holder": placed["is_holder"]}
                shown["ranked"] = board.order.numbered
        return shown


Words = Annotated[str, Query(max_length=100)]


@public_page("/search", "search.html")
def search_page(session: Session, q: Words = "") -> Context:
    """Show benchmarks, submitters, accelerators, systems and submissions named by the words."""
    words = " ".join(q.split())
    if not words:
        return {"words": words, "groups": {}, "rows": [], "near": [], "titles": {}}
    names = _names(session)
    found = {
        group: [each for each in members if words.casefold() in each[0].casefold()]
        for group, members in names.items()
    }
    rows = _Rows(session)
    ours = find_submissions(session, words, limit=MOST_FOUND, among=MOST_SEARCHED)
    groups = {name: members[:MOST_FOUND] for name, members in found.items() if members}
    is_found = groups or ours
    every = () if is_found else [each[0] for members in names.values() for each in members]
    return {
        "words": words,
        "groups": groups,
        "rows": [rows.shown(row) for row in ours],
        "near": near_names(words, every),
        "most": MOST_FOUND,
        "titles": titles_of(session),
    }


def titles_of(session: Session) -> dict[str, str]:
    """Return the titles of the benchmarks by id, sorted."""
    every = sorted(benchmarks_of(session).values(), key=lambda each: each.title)
    return {each.benchmark_id: each.title for each in every}


def near_names(words: str, names: Iterable[str]) -> list[str]:
    """Return up to five names that the words may have meant, or ids in brackets after names."""
    known: dict[str, str] = {}
    for name in names:
        title, _, rest = name.casefold().partition(" (")
        known |= dict.fromkeys((title, rest.removesuffix(")")), name)
    close = get_close_matches(words.casefold(), known, n=5)
    return list(dict.fromkeys(known[one] for one in close))


def _names(session: Session) -> dict[str, list[tuple[str, str, str]]]:
    """List names with their pages and numbers of submissions. Benchmarks have their task."""
    latest = session.execute(
        select(SUBMITTER, DISPLAY_NAME, Submission.system)
        .join(User, User.id == Submission.user_id)
        .outerjoin(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(Submission.withdrawn_at.is_(None), Submission.embargoed.is_(False))
        .order_by(Submission.submitted_at.desc())
        .limit(MOST_SEARCHED)
    ).all()
    models = Counter(accelerator_of_system(row.system).model for row in latest)
    submitters = Counter(row.submitter for row in latest)
    known = {row.submitter: named(row.submitter, row.display_name) for row in latest}
    return {
        "Benchmarks": [
            (f"{title} ({name})", f"/benchmarks/{name}", benchmarks_of(session)[name].task)
            for name, title in titles_of(session).items()
        ],
        "Submitters": [
            (known[name], f"/submitters/{quote(name, safe='')}", count_text(count, "submission"))
            for name, count in sorted(submitters.items())
        ],
        "Hardware": [
            (name, f"/accelerators/{quote(name, safe='')}", count_text(count, "submission"))
            for name, count in sorted(models.items(), key=lambda one: one[0] or "")
            if name
        ],
    }

"""A run of a submission: its curve, its seconds by phase, and its log by numbered lines."""

from contextlib import closing
from typing import Annotated, BinaryIO

from fastapi import Path, Query
from sqlalchemy.orm import Session

from finishline.api.submissions import RunView
from server.base.errors import LostFileError
from server.base.services import Services
from server.pages.declared import Context, public_page
from server.pages.queries import sampled_curve, submission_context
from server.submissions.lists import find_run, find_submission
from web.formats import visible
from web.race import runs_picture

MOST_EVALUATIONS = 2_000
# The whole log is there to download: a page shows a part, and cuts lines that nobody reads.
LINES = 500
MOST_PAGES = 40
LONGEST_LINE = 1_000
Index = Annotated[int, Path(ge=0, le=10_000)]
PageQuery = Annotated[int, Query(ge=1, le=MOST_PAGES)]


@public_page("/submissions/{submission_id}/runs/{index}", "run.html")
def run_page(
    session: Session, services: Services, submission_id: str, index: Index, page: PageQuery = 1
) -> Context:
    """A run with a page of its log, each line with an anchor."""
    run = find_run(session, submission_id, index)
    context = submission_context(session, services, find_submission(session, submission_id))
    curve = {"file": run.file, "curve": sampled_curve(run.curve, MOST_EVALUATIONS)}
    try:
        log = services.artifacts.open(run.log_sha256)
    except OSError as error:
        raise LostFileError(run.log_sha256) from error
    first = (page - 1) * LINES + 1
    with closing(log):
        lines, goes_on = read_lines(log, first=first, count=LINES)
    return context | {
        "run": RunView.of(run),
        "picture": runs_picture([curve], context["benchmark"]["target"], (), context["time"]),
        "first": first,
        "lines": lines,
        "page": page,
        "goes_on": goes_on and page < MOST_PAGES,
        "is_cut": goes_on and page == MOST_PAGES,
    }


def read_lines(log: BinaryIO, *, first: int, count: int) -> tuple[list[str], bool]:
    """Lines from a number on, from 1, as text to show, and whether there are more.

    Of a longer line its beginning is left.
    """
    lines: list[str] = []
    number = 0
    while piece := log.readline(LONGEST_LINE):
        number += 1
        if number == first + count:
            return lines, True
        if number >= first:
            lines.append(visible(piece.decode(errors="replace").rstrip("\r\n")))
        while not piece.endswith(b"\n") and (piece := log.readline(LONGEST_LINE)):
            pass
    return lines, False

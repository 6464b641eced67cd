"""A run of a submission: its curve, its seconds by phase, and its log by numbered lines."""

from contextlib import closing
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse

from finishline.api.submissions import RunView
from server.base.errors import LostFileError
from server.base.services import ServicesDep
from server.pages.queries import sampled_curve, submission_context
from server.people.signed_in import ViewerDep
from server.submissions.service import find_run
from web.formats import visible
from web.race import runs_picture
from web.render import render

router = APIRouter(include_in_schema=False)
MOST_EVALUATIONS = 2_000
# The whole log is there to download: a page shows a part, and cuts lines that nobody reads.
LINES = 500
MOST_PAGES = 40
LONGEST_LINE = 1_000
Index = Annotated[int, Path(ge=0, le=10_000)]
PageQuery = Annotated[int, Query(ge=1, le=MOST_PAGES)]


@router.get("/submissions/{submission_id}/runs/{index}", response_class=HTMLResponse)
def run_page(
    submission_id: str, index: Index, services: ServicesDep, viewer: ViewerDep, page: PageQuery = 1
) -> str:
    """A run with a page of its log, each line with an anchor."""
    with services.database.read(viewer) as session:
        run = find_run(session, submission_id, index)
        context: dict[str, Any] = submission_context(session, services, submission_id)
        curve = {"file": run.file, "curve": sampled_curve(run.curve, MOST_EVALUATIONS)}
        shown = RunView.of(run).model_dump(mode="json")
        sha256 = run.log_sha256
    try:
        log = services.artifacts.open(sha256)
    except OSError as error:
        raise LostFileError(sha256) from error
    with closing(log):
        lines, goes_on = read_lines(log, first=(page - 1) * LINES + 1, count=LINES)
    return render(
        "run.html",
        **context,
        run=shown,
        picture=runs_picture([curve], context["benchmark"]["target"], (), context["time"]),
        first=(page - 1) * LINES + 1,
        lines=lines,
        page=page,
        goes_on=goes_on and page < MOST_PAGES,
        is_cut=goes_on and page == MOST_PAGES,
    )


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

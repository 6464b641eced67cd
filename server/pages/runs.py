"""Show parts of a submission: its runs with their logs, and its code."""

from contextlib import closing
from typing import Annotated, Any, BinaryIO

from fastapi import Path, Query, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from finishline.api.submissions import RunView
from server.base.database import Services, find_row
from server.base.errors import LostFileError, NotFoundError
from server.base.models import Submission, TrainingPackage
from server.base.visibility import Viewer
from server.pages.declared import Context, public_page
from server.pages.queries import sampled_curve, submission_context, title_of
from server.submissions.code import FileDifference, difference, find_source
from server.submissions.rows import find_run
from web.charts.curves import runs_chart
from web.formats import visible

MOST_EVALUATIONS = 2_000
# A page shows a part of a log and cuts long lines. The whole log can be downloaded.
LINES = 500
MOST_PAGES = 40
LONGEST_LINE = 1_000
Index = Annotated[int, Path(ge=0, le=10_000)]
PageQuery = Annotated[int, Query(ge=1, le=MOST_PAGES)]


@public_page("/submissions/{submission_id}/runs/{index}", "run.html")
def run_page(
    session: Session, services: Services, submission_id: str, index: Index, page: PageQuery = 1
) -> Context:
    """Show a run with a page of its log, each line with an anchor."""
    run = find_run(session, submission_id, index)
    context = submission_context(session, find_row(session, Submission, submission_id))
    curve: Context = {"file": run.file, "seconds": run.tta_seconds}
    curve["curve"] = sampled_curve(run.curve, MOST_EVALUATIONS)
    try:
        log = services.artifacts.open(run.log_sha256)
    except OSError as error:
        raise LostFileError(run.log_sha256) from error
    first = (page - 1) * LINES + 1
    with closing(log):
        lines, goes_on = read_lines(log, first=first, count=LINES)
    return context | {
        "run": RunView.of(run),
        "chart": runs_chart([curve], context["benchmark"]["target"], time=context["time"]),
        "first": first,
        "lines": lines,
        "page": page,
        "goes_on": goes_on and page < MOST_PAGES,
        "is_cut": goes_on and page == MOST_PAGES,
    }


def read_lines(log: BinaryIO, *, first: int, count: int) -> tuple[list[str], bool]:
    """Read lines from a number on as text, cut if long. Returns whether there are more."""
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


HashesPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}(\.\.[0-9a-f]{64})?$")]


@public_page("/packages/{hashes}", "package_difference.html")
def package_page(session: Session, viewer: Viewer, hashes: HashesPath) -> Context | Response:
    """Redirect to a published code submission by its hash, or compare two, named as in A..B."""
    found = [_source(session, viewer, sha256) for sha256 in hashes.split("..")]
    if len(found) == 1:
        address = f"/submissions/{found[0].submission_id}?tab=system"
        return RedirectResponse(address, status_code=303)
    old, new = found
    side = _side(session, new)
    return {
        "pair": hashes,
        "old": _side(session, old),
        "new": side,
        "files": [_shown(each) for each in difference(old.files, new.files)],
        "benchmark_title": title_of(session, side["benchmark"]),
    }


def _source(session: Session, viewer: Viewer, sha256: str) -> TrainingPackage:
    found = find_source(session, viewer, sha256)
    if found is None:
        raise NotFoundError(
            f"There is no published code {sha256}. A submission's page has its SHA-256. Its source "
            "is published with its first verdict."
        )
    return found


def _side(session: Session, package: TrainingPackage) -> dict[str, Any]:
    submission = session.get_one(Submission, package.submission_id)
    return {
        "submission_id": submission.id,
        "benchmark": submission.benchmark_id,
        "title": package.manifest["title"],
        "submitter": submission.submitter,
        "sha256": package.package_sha256,
    }


def _shown(file: FileDifference) -> dict[str, Any]:
    lines = file.lines
    if lines is None:
        return {"name": file.name, "lines": None}
    kinds = [kind for kind, _ in lines]
    return {
        "name": file.name,
        "lines": [{"kind": kind, "text": visible(text)} for kind, text in lines],
        "added": kinds.count("added"),
        "removed": kinds.count("removed"),
    }

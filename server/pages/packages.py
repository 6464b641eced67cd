"""Two packages side by side: the lines that one has and the other lacks."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from finishline.rules.trainings.difference import FileDifference, difference
from server.base.errors import NotFoundError
from server.base.models import Submission, TrainingPackage
from server.base.services import ServicesDep
from server.base.viewer import Viewer
from server.pages.queries import title_of
from server.people.signed_in import ViewerDep
from server.submissions.sources import find_source
from web.formats import visible
from web.render import render

router = APIRouter(include_in_schema=False)
PairPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}\.\.[0-9a-f]{64}$")]


@router.get("/packages/{pair}", response_class=HTMLResponse)
def difference_page(pair: PairPath, services: ServicesDep, viewer: ViewerDep) -> str:
    """The difference of two published packages, named by their hashes as in A..B."""
    with services.database.read(viewer) as session:
        old, new = (_source(session, viewer, sha256) for sha256 in pair.split(".."))
        files = [_shown(each) for each in difference(old.files, new.files)]
        sides = [_side(session, package) for package in (old, new)]
    return render(
        "package_difference.html",
        pair=pair,
        old=sides[0],
        new=sides[1],
        files=files,
        benchmark_title=title_of(services, sides[1]["benchmark"]),
    )


def _source(session: Session, viewer: Viewer, sha256: str) -> TrainingPackage:
    found = find_source(session, viewer, sha256)
    if found is None:
        raise NotFoundError(
            f"There is no published package {sha256}. A package's page has its SHA-256; its source "
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
    """A file with its lines as text to show, and how many were added and removed."""
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

"""Code by its hash, and two side by side: the lines that one has and the other lacks."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from server.base.errors import NotFoundError
from server.base.models import Submission, TrainingPackage
from server.base.services import ServicesDep
from server.base.viewer import Viewer
from server.pages.queries import title_of
from server.people.signed_in import ViewerDep
from server.submissions.package_difference import FileDifference, difference
from server.submissions.sources import find_source
from web.formats import visible
from web.render import render

router = APIRouter(include_in_schema=False)
HashesPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}(\.\.[0-9a-f]{64})?$")]


@router.get("/packages/{hashes}", response_class=HTMLResponse)
def package_page(hashes: HashesPath, services: ServicesDep, viewer: ViewerDep) -> Response:
    """Lead to a published code submission by its hash; compare two, named as in A..B."""
    if ".." in hashes:
        return HTMLResponse(_difference_page(hashes, services, viewer))
    with services.database.read(viewer) as session:
        submission_id = _source(session, viewer, hashes).submission_id
    return RedirectResponse(f"/submissions/{submission_id}?tab=system", status_code=303)


def _difference_page(pair: str, services: ServicesDep, viewer: Viewer) -> str:
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
            f"There is no published code {sha256}. A submission's page has its SHA-256; its source "
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

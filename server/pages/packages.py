"""Code by its hash, and two side by side: the lines that one has and the other lacks."""

from typing import Annotated, Any

from fastapi import Path, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from server.base.errors import NotFoundError
from server.base.models import Submission, TrainingPackage
from server.base.services import Services
from server.base.visibility import Viewer
from server.pages.declared import Context, public_page
from server.pages.queries import title_of
from server.submissions.code import FileDifference, difference, find_source
from web.formats import visible

HashesPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}(\.\.[0-9a-f]{64})?$")]


@public_page("/packages/{hashes}", "package_difference.html")
def package_page(
    session: Session, services: Services, viewer: Viewer, hashes: HashesPath
) -> Context | Response:
    """Lead to a published code submission by its hash; compare two, named as in A..B."""
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
        "benchmark_title": title_of(services, side["benchmark"]),
    }


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

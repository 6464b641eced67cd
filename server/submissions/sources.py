"""Sources of packages: their files, who reads them, and the parent that a manifest names."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.text import line_of
from finishline.rules.trainings.manifest import FILE
from finishline.rules.verification.messages import PACKAGE_PREFIX
from server.base.errors import ContentError, NotFoundError
from server.base.models import Submission, TrainingPackage
from server.base.models.visibility import may_see, sees_source
from server.base.viewer import Viewer
from server.submissions.service import find_submission


def find_package(session: Session, submission_id: str) -> TrainingPackage:
    """Find the package of a submission. Raises NotFoundError."""
    package = session.get(TrainingPackage, submission_id)
    if package is None:
        find_submission(session, submission_id)
        raise NotFoundError(f"Submission {submission_id!r} is no code submission.")
    return package


def read_source(session: Session, viewer: Viewer, submission_id: str, name: str) -> str:
    """Text of a file of a package. Raises NotFoundError, also for one that is not published yet."""
    submission = find_submission(session, submission_id)
    package = find_package(session, submission_id)
    if not sees_source(viewer, submission):
        raise NotFoundError(
            "These files are their submitter's and the organisers' until the submission's first "
            "verdict."
        )
    if name not in package.files:
        known = ", ".join(sorted(package.files))
        raise NotFoundError(f"The code submission has no file {name!r}; it has {known}.")
    return str(package.files[name])


def find_source(session: Session, viewer: Viewer, sha256: str) -> TrainingPackage | None:
    """The package of this hash whose source a viewer may read, the earliest of several entries."""
    statement = (
        select(Submission, TrainingPackage)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .where(TrainingPackage.package_sha256 == sha256)
        .order_by(Submission.submitted_at, Submission.id)
    )
    for submission, package in session.execute(statement):
        if may_see(viewer, submission) and sees_source(viewer, submission):
            return package
    return None


def parent_of(session: Session, viewer: Viewer, package: TrainingPackage) -> TrainingPackage | None:
    """The package that another one says it is based on, if a viewer may read it."""
    based_on = package.manifest["based_on"]
    if based_on is None:
        return None
    return find_source(session, viewer, based_on.removeprefix(PACKAGE_PREFIX))


def require_parent(session: Session, viewer: Viewer, package: TrainingPackage) -> None:
    """Raise ContentError unless the parent that a package names is there for its submitter.

    A package's hash covers that of its parent, which is handed in first: no circle can be made.
    """
    based_on = package.manifest["based_on"]
    if based_on is None or find_source(session, viewer, based_on.removeprefix(PACKAGE_PREFIX)):
        return
    problem = {
        "file": FILE,
        "line": line_of(package.files[FILE].encode(), "based_on"),
        "field": "based_on",
        "message": f"no published code submission {based_on}",
        "expected": "sha256: and the SHA-256 of a published code submission, or of one of yours",
    }
    raise ContentError(
        f"{FILE}, field based_on: {problem['message']}; expected {problem['expected']}.",
        hint="Hand the parent in first, or remove the line.",
        problems=[problem],
    )

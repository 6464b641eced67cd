"""Preview of a submission: every check, its score and its place, with nothing written."""

from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.api.submissions import (
    InferenceResultView,
    PackageView,
    ResultView,
    RunView,
    SystemView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Check, Evidence
from server.base.models import Submission
from server.base.services import Services
from server.base.viewer import ORGANISER
from server.benchmarks.prices import BookCosts
from server.people.dependencies import Caller
from server.submissions.accept import (
    NewSubmission,
    admit_new,
    refuse_same_logs,
    require_may_send,
    reserve,
    with_checked,
)
from server.submissions.duplicates import find_original
from server.submissions.upload import Upload
from server.submissions.views import submission_view


class SubmissionPreview(Schema):
    """A submission that was checked and scored, and not stored.

    `rank` is its place on the board of its division among `entries` if it were sent
    now. `unranked_reason` says why it has no number. An entry has a `package` and no `result`: a
    worker measures its time.
    """

    benchmark: str
    benchmark_version: str
    division: str
    kind: str
    model: str
    framework: str
    system: SystemView
    trained_with: str
    duplicate_of: str | None = None
    result: ResultView | InferenceResultView | None
    runs: list[RunView]
    package: PackageView | None
    under_embargo: bool
    evidence: Evidence
    check: Check | None
    rank: int | None = None
    unranked_reason: str | None = None
    entries: int | None = None


def preview(services: Services, caller: Caller, upload: Upload) -> SubmissionPreview:
    """Preview an upload of either kind. Raises as `accept` does."""
    require_may_send(caller, upload)
    return with_checked(services, caller, upload, _preview)


def _preview(new: NewSubmission) -> SubmissionPreview:
    with new.services.database.read(ORGANISER) as session:
        admit_new(session, new)
        submission = new.build(session)
        if new.package is not None:
            reserve(session, new, submission)
        elif not new.upload.archive:
            refuse_same_logs(session, submission, new.runs)
        return _view(new.services, session, new.benchmark, submission)


def _view(
    services: Services,
    session: Session,
    benchmark: Benchmark,
    submission: Submission,
) -> SubmissionPreview:
    original = find_original(session, submission, benchmark)
    submission.duplicate_of = None if original is None else original.id
    costs = BookCosts(session)
    shown = submission_view(submission, benchmark_version=benchmark.version, costs=costs)
    fields = {
        name: getattr(shown, name)
        for name in SubmissionPreview.model_fields
        if name in type(shown).model_fields
    }
    if submission.package is not None:
        return SubmissionPreview(**fields | {"result": None})
    return SubmissionPreview(**fields | services.place_of_new(session, benchmark, submission))

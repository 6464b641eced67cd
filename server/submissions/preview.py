"""Preview of a submission: every check, its score and its place, with nothing written."""

from collections.abc import Mapping
from functools import partial

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
    with_scored,
)
from server.submissions.duplicates import find_original
from server.submissions.packages import check_package, new_entry, under_ruling
from server.submissions.quotas import reserve_replay
from server.submissions.rows import published_row, show_row, show_unstored
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


def preview_upload(services: Services, caller: Caller, upload: Upload) -> SubmissionPreview:
    """Preview an upload. Raises as `submit` does."""
    require_may_send(caller, upload)
    return with_scored(services, caller, upload, _preview)


def _preview(new: NewSubmission) -> SubmissionPreview:
    archive = new.upload.archive
    with new.services.database.read(ORGANISER) as session:
        admit_new(session, new)
        published = (
            published_row(new.row, new.scored.claim, new.upload.source_commit) if archive else None
        )
        submission = show_row(new.row, new.caller, published=published)
        if not archive:
            refuse_same_logs(session, submission, new.runs)
        runs = [RunView(**run) for run in new.runs]
        return _view(new.services, session, new.benchmark, submission, runs)


def preview_package(
    services: Services,
    caller: Caller,
    files: Mapping[str, bytes],
    hardware_class: str | None,
) -> SubmissionPreview:
    """Preview a training package, whose time is not known yet. Raises as `hand_in` does."""
    package = check_package(services, files)

    def view(session: Session, benchmark: Benchmark) -> SubmissionPreview:
        entry = new_entry(services, session, caller, package, benchmark, hardware_class)
        if not caller.is_organiser:
            reserve_replay(
                session,
                services.settings,
                entry,
                user_id=caller.user_id,
                kind="entry",
                lock=False,
                benchmark=benchmark,
            )
        return _view(services, session, benchmark, show_unstored(entry, caller), [])

    return under_ruling(services, package, partial(services.database.read, ORGANISER), view)


def _view(
    services: Services,
    session: Session,
    benchmark: Benchmark,
    submission: Submission,
    runs: list[RunView],
) -> SubmissionPreview:
    original = find_original(session, submission, benchmark)
    submission.duplicate_of = None if original is None else original.id
    shown = submission_view(
        submission, benchmark_version=benchmark.version, costs=BookCosts(session), runs=runs
    )
    fields = {
        name: getattr(shown, name)
        for name in SubmissionPreview.model_fields
        if name in type(shown).model_fields
    }
    if submission.package is not None:
        return SubmissionPreview(**fields | {"result": None})
    return SubmissionPreview(**fields | services.place_of_new(session, benchmark, submission))

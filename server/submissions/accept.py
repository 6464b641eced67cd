"""Accept logs or code: check and score first, then store everything in one transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar, cast

from sqlalchemy import Table, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError
from finishline.rules.submissions.claim import Claim
from finishline.rules.submissions.submission import score_submission
from server.base.board_versions import raise_board_version
from server.base.errors import ConflictError, ContentError, NotAllowedError, UsedUpError
from server.base.events import SubmissionAccepted, VerificationWanted, emit
from server.base.hardware_classes import misfit_of_claim
from server.base.models import PublishedResult, RunRow, Submission, TrainingPackage, User
from server.base.services import Services
from server.base.standing import is_verified_by_policy
from server.base.viewer import Viewer
from server.benchmarks.phases import FrozenOtherwiseError, admit
from server.benchmarks.queries import definition, importable_benchmarks, keep_definition
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.submissions.duplicates import configuration_sha256, mark_duplicate
from server.submissions.packages import read_code, refuse_known
from server.submissions.quotas import require_room_for_submission, reserve_replay
from server.submissions.rows import (
    Row,
    find_published,
    no_result,
    published_row,
    run_rows,
    source_row,
    submission_row,
)
from server.submissions.service import find_submission, id_under_key
from server.submissions.sources import require_parent
from server.submissions.upload import CodeUpload, LogUpload, Upload

T = TypeVar("T")
MOST_TOLD = 20
# Of logs alone: joined, SQLite looks through all submissions of the benchmark, in its one writer.
_RUNS = cast(Table, RunRow.__table__).c
_HOLDERS = select(_RUNS.submission_id).where(
    _RUNS.log_sha256.in_(bindparam("hashes", expanding=True)),
    _RUNS.submission_id != bindparam("own"),
)


def refuse_same_logs(session: Session, submission: Submission, runs: Sequence[Row]) -> None:
    """Raise ConflictError if another submission of the benchmark has a byte-identical log.

    Logs of a withdrawn submission may be sent again, to correct a wrong claim.
    """
    if not runs:
        return
    files = {run["log_sha256"]: run["file"] for run in runs}
    asked = {"hashes": list(files), "own": submission.id}
    holders = set(session.connection().scalars(_HOLDERS, asked))
    if not holders:
        return
    found = session.execute(
        select(RunRow.file, RunRow.log_sha256, Submission.id, Submission.embargoed)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            RunRow.log_sha256.in_(files),
            Submission.id.in_(holders),
            Submission.benchmark_id == submission.benchmark_id,
            Submission.withdrawn_at.is_(None),
        )
        .order_by(RunRow.submission_id, RunRow.index)
        .limit(MOST_TOLD)
    ).all()
    if not found:
        return
    problems = [
        {
            "file": files[row.log_sha256],
            "line": None,
            "field": "runs",
            "message": "byte for byte " + _named(row.file, row.id, hidden=row.embargoed),
            "expected": "the log of a training that was not handed in before",
        }
        for row in found
    ]
    first = problems[0]
    raise ConflictError(
        f"{first['file']} is {first['message']}.",
        hint="Send the logs of other trainings, or withdraw that submission if it is yours.",
        problems=problems,
    )


def _named(file: str, submission_id: str, *, hidden: bool) -> str:
    """Name a submission with its address, unless it is under embargo."""
    if hidden:
        return "a log of another submission, which is under embargo"
    return f"{file} of submission {submission_id} (/submissions/{submission_id})"


def require_own_class(session: Session, claim: Claim, *, file: str) -> None:
    """Raise ClaimError if a claim's system does not match its hardware class."""
    misfit = misfit_of_claim(session, asdict(claim.system))
    if misfit is not None:
        raise ClaimError(
            f"got {misfit.found}",
            file=file,
            field=f"system.{misfit.field}",
            expected=f"{misfit.expected}, as hardware class {claim.system.hardware_class} has; "
            "name the class of your machine, or another name if it is in none "
            "(GET /api/v1/hardware-classes lists them)",
            code="hardware_class_contradicts_claim",
        )


MAX_KEY_LENGTH = 200


@dataclass(frozen=True)
class Accepted:
    """A submission that is stored: now, or by an earlier request (key, archive)."""

    submission_id: str
    repeated: bool = False


def accept(services: Services, caller: Caller, upload: Upload, *, key: str | None) -> Accepted:
    """Check, score and store an upload of either kind, once for each idempotency key.

    An archive is stored with the rules it breaks, and only an organiser may submit it.
    """
    require_may_send(caller, upload)
    check_idempotency_key(key)
    find = partial(_find_earlier, services, caller, key, request_sha256=upload.sha256)
    accepted = find()
    try:
        accepted = accepted or with_checked(services, caller, upload, _store, key=key)
    except (IntegrityError, ConflictError):
        # Two requests under one key came at the same time; the other one won.
        accepted = find()
        if accepted is None:
            raise
    if accepted.repeated:
        _name_source(services, caller, upload, accepted)
    return accepted


def require_may_send(caller: Caller, upload: Upload) -> None:
    """Raise NotAllowedError for an archive from somebody who may not organise."""
    if upload.archive and not caller.is_organiser:
        raise NotAllowedError(
            "Only an organiser may hand in an archive.",
            hint="Take an organiser's token, or send what is yours without the field archive.",
        )


@dataclass(frozen=True)
class NewSubmission:
    """Checked submission to insert, with the values of its rows. Code has a `package`."""

    services: Services
    caller: Caller
    upload: Upload
    claim: Claim
    benchmark: Benchmark
    row: Row
    runs: list[Row]
    package: TrainingPackage | None

    @property
    def published(self) -> Row | None:
        """Values of the published result; None of what is not an archive."""
        if not self.upload.archive:
            return None
        return published_row(self.row, self.claim, self.upload.source_commit)

    def build(self, session: Session) -> Submission:
        """The submission with its runs, its published result and its code."""
        published = self.published
        return Submission(
            **self.row,
            user=session.get_one(User, self.caller.user_id),
            published=None if published is None else PublishedResult(**published),
            package=self.package,
            runs=[RunRow(**run) for run in self.runs],
        )


def with_checked(
    services: Services,
    caller: Caller,
    upload: Upload,
    use: Callable[[NewSubmission], T],
    *,
    key: str | None = None,
) -> T:
    """Check an upload and return the result of `use`, which admits it. Raises as `accept` does."""
    offered = services.benchmarks
    benchmarks = importable_benchmarks(offered) if upload.archive else offered
    new = _check(services, caller, upload, benchmarks, key=key)
    try:
        return use(new)
    except FrozenOtherwiseError as error:
        # Another server froze the rules since this one last polled: the frozen rules apply.
        ruling = _ruling(services, new.benchmark.benchmark_id, error.sha256)
        return use(_check(services, caller, upload, ruling, key=key))


def _check(
    services: Services,
    caller: Caller,
    upload: Upload,
    benchmarks: Mapping[str, Benchmark],
    *,
    key: str | None,
) -> NewSubmission:
    if isinstance(upload, CodeUpload):
        claim, package = read_code(services, caller, upload, benchmarks)
        benchmark = benchmarks[claim.benchmark_id]
        row = submission_row(caller, upload, claim, no_result(benchmark), benchmark, key=key)
        return NewSubmission(services, caller, upload, claim, benchmark, row, [], package)
    scored = score_submission(
        upload.claim_json,
        upload.log_files,
        benchmarks,
        file=upload.claim_file,
        benchmark_id=upload.benchmark_id,
        division=upload.division,
        archive=upload.archive,
    )
    claim = scored.claim
    benchmark = benchmarks[claim.benchmark_id]
    row = submission_row(caller, upload, claim, scored.result, benchmark, key=key)
    runs = run_rows(scored, upload.logs)
    return NewSubmission(services, caller, upload, claim, benchmark, row, runs, None)


def _ruling(services: Services, benchmark_id: str, sha256: str) -> Mapping[str, Benchmark]:
    with services.database.read() as session:
        return {benchmark_id: definition(session, sha256)}


def check_idempotency_key(key: str | None) -> None:
    """Raise ContentError unless the key is absent or 1 to 200 printable characters."""
    if key is not None and not (key.strip() and len(key) <= MAX_KEY_LENGTH and key.isprintable()):
        raise ContentError(
            f"Header Idempotency-Key: expected 1 to {MAX_KEY_LENGTH} printable characters."
        )


def _find_earlier(
    services: Services, caller: Caller, key: str | None, *, request_sha256: str
) -> Accepted | None:
    """Find the submission that the caller made with an idempotency key."""
    if key is None:
        return None
    with services.database.read_columns() as connection:
        submission_id = id_under_key(connection, caller.user_id, key)
    if submission_id is None:
        return None
    with services.database.read(Viewer(user_ids=(caller.user_id,))) as session:
        if find_submission(session, submission_id).request_sha256 != request_sha256:
            raise ConflictError(
                f"This Idempotency-Key was used for submission {submission_id} with other content; "
                "use a new key for a new submission."
            )
    return Accepted(submission_id, repeated=True)


def _name_source(services: Services, caller: Caller, upload: Upload, earlier: Accepted) -> None:
    """Note the known archive of a result that was imported before without one."""
    if upload.source_commit is None:
        return
    with services.database.write() as session:
        submission = session.get_one(Submission, earlier.submission_id)
        published = submission.published
        source = source_row(submission.benchmark_id, upload.source_commit)
        if source is None or published is None or published.source is not None:
            return
        published.source = source
        record(
            session,
            caller,
            "archive.source",
            Subject("submission", submission.id),
            reason=None,
            before={"archive": None},
            after={"archive": source},
        )
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def _store(new: NewSubmission) -> Accepted:
    services, benchmark = new.services, new.benchmark
    if new.upload.archive and (earlier := _find_published(new)) is not None:
        return Accepted(earlier, repeated=True)
    settled = services.artifacts.settle(new.upload.staged)
    with services.database.write() as session:
        admit_new(session, new)
        keep_definition(session, benchmark, services.settings.benchmarks_dir)
        submission = new.build(session)
        session.add(submission)
        session.flush()
        raise_board_version(session, benchmark.benchmark_id, submission_id=new.row["id"])
        if new.upload.archive:
            _record_import(session, new, submission)
        else:
            refuse_same_logs(session, submission, new.runs)
            emit(session, SubmissionAccepted(submission))
            _link_or_verify(session, new, submission)
        # Last, so that a failure leaves no file; before the commit, so that a stored submission
        # always has its files.
        services.artifacts.keep(settled)
    if benchmark.benchmark_id not in services.benchmarks:
        services.benchmarks.offer(shipped_definition(benchmark.benchmark_id))
    return Accepted(submission.id)


def _find_published(new: NewSubmission) -> str | None:
    """Find a set of an MLPerf round that was stored under another key.

    The command writes its claim, and a later release writes more fields. An entry of DAWNBench is
    its own bytes, so another key means another entry.
    """
    if new.row["dawnbench"] is not None or not new.runs or new.published is None:
        return None
    with new.services.database.read() as session:
        return find_published(session, new.row, new.runs, new.published)


def admit_new(session: Session, new: NewSubmission) -> None:
    """Check an upload against what is stored: classes, quotas, dates; and complete its row."""
    caller, row, archive = new.caller, new.row, new.upload.archive
    settings = new.services.settings
    if new.package is not None:
        viewer = Viewer(user_ids=(caller.user_id,), sees_all=caller.is_organiser)
        require_parent(session, viewer, new.package)
        refuse_known(session, caller, new.package)
    elif isinstance(new.upload, LogUpload) and not archive:
        require_own_class(session, new.claim, file=new.upload.claim_file)
    if not caller.is_organiser:
        require_room_for_submission(session, settings, user_id=caller.user_id)
    admission = admit(session, new.benchmark, settings.benchmarks_dir, archive=archive)
    row["embargoed"] = admission.embargoed
    if not archive:
        row["configuration_sha256"] = configuration_sha256(new.benchmark, new.claim, new.package)


def _link_or_verify(session: Session, new: NewSubmission, submission: Submission) -> None:
    """Mark a duplicate, or request the verification that code or the policy requires.

    Without room in a quota code is refused, and logs are stored as they are.
    """
    is_code = new.package is not None
    if submission.configuration_sha256 is not None and mark_duplicate(session, submission):
        return
    if not is_code and not is_verified_by_policy(new.benchmark, new.claim):
        return
    try:
        reserved = reserve(session, new, submission)
    except (UsedUpError, NotAllowedError):
        if is_code:
            raise
        return
    emit(session, VerificationWanted(submission, new.caller.user_id, reserved))


def reserve(session: Session, new: NewSubmission, submission: Submission) -> float | None:
    """Accelerator seconds of the first verification on the submitter's quota; None if not counted.

    Raises UsedUpError or NotAllowedError without room for them.
    """
    if new.caller.is_organiser:
        return None
    return reserve_replay(
        session,
        new.services.settings,
        submission,
        user_id=new.caller.user_id,
        kind="replay" if new.package is None else "entry",
        benchmark=new.benchmark,
    )


def _record_import(session: Session, new: NewSubmission, submission: Submission) -> None:
    published = new.published or {}
    record(
        session,
        new.caller,
        "archive.import",
        Subject("submission", submission.id),
        reason=None,
        before=None,
        after={
            "benchmark": submission.benchmark_id,
            "organisation": published["organisation"],
            # Not "source": that tells where the action came from.
            "archive": published["source"],
            "commit": new.upload.source_commit,
            "logs": len(new.runs),
            "claim_sha256": submission.claim_sha256,
            "tta_seconds": submission.tta_seconds,
        },
    )

"""Accept a submission: check and score first, then store everything in one transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar, cast

from sqlalchemy import Table, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from finishline.api.submissions import RunView
from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError
from finishline.rules.submissions.claim import Claim
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from server.base.board_versions import raise_board_version
from server.base.errors import ConflictError, ContentError, NotAllowedError, UsedUpError
from server.base.events import SubmissionAccepted, VerificationWanted, emit
from server.base.hardware_classes import misfit_of_claim
from server.base.models import RunRow, Submission
from server.base.services import Services
from server.base.standing import is_verified_by_policy
from server.base.viewer import Viewer
from server.benchmarks.phases import FrozenOtherwiseError, admit
from server.benchmarks.queries import definition, importable_benchmarks, keep_definition
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.submissions.duplicates import configuration_sha256, mark_duplicate
from server.submissions.quotas import require_room_for_submission, reserve_replay
from server.submissions.rows import (
    Row,
    find_published,
    insert_rows,
    join_session,
    published_row,
    run_rows,
    show_row,
    source_row,
    submission_row,
)
from server.submissions.service import find_submission, id_under_key, lock_submissions
from server.submissions.upload import Upload

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
        f"{first['file']} is {first['message']}. A log is handed in once: send the logs of other "
        "trainings, or withdraw that submission first if it is yours and wrong.",
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
class Stored:
    """Submission that was just stored, with all its view needs: it is not read again."""

    submission: Submission
    benchmark_version: str
    runs: list[RunView]


@dataclass(frozen=True)
class Repeated:
    """Submission that an earlier request stored, with the same key or of the same archive."""

    submission_id: str


def submit(
    services: Services, caller: Caller, upload: Upload, *, key: str | None
) -> Stored | Repeated:
    """Check, score and store an upload, once for each idempotency key.

    An archive is stored with the rules it breaks, and only an organiser may submit it.
    """
    require_may_send(caller, upload)
    check_idempotency_key(key)
    earlier = find_earlier(services, caller, key, request_sha256=upload.sha256)
    if earlier is not None:
        _name_source(services, caller, upload, earlier)
        return earlier
    try:
        stored = with_scored(services, caller, upload, _store, key=key)
        if isinstance(stored, Repeated):
            _name_source(services, caller, upload, stored)
        return stored
    except (IntegrityError, ConflictError):
        # Two requests under one key came at the same time; the other one won.
        earlier = find_earlier(services, caller, key, request_sha256=upload.sha256)
        if earlier is None:
            raise
        return earlier


def require_may_send(caller: Caller, upload: Upload) -> None:
    """Raise NotAllowedError for an archive from somebody who may not organise."""
    if upload.archive and not caller.is_organiser:
        raise NotAllowedError(
            "Only an organiser may hand in an archive: take an organiser's token, or send what is "
            "yours without the field archive."
        )


@dataclass(frozen=True)
class NewSubmission:
    """Scored submission to insert, with the values of its rows."""

    services: Services
    caller: Caller
    upload: Upload
    scored: ScoredSubmission
    benchmark: Benchmark
    row: Row
    runs: list[Row]


def with_scored(
    services: Services,
    caller: Caller,
    upload: Upload,
    use: Callable[[NewSubmission], T],
    *,
    key: str | None = None,
) -> T:
    """Score an upload and return the result of `use`, which admits it. Raises as `submit` does."""
    offered = services.benchmarks
    benchmarks = importable_benchmarks(offered) if upload.archive else offered
    new = _score(services, caller, upload, benchmarks, key=key)
    try:
        return use(new)
    except FrozenOtherwiseError as error:
        # Another server froze the rules since this one last polled: the frozen rules apply.
        ruling = _ruling(services, new.benchmark.benchmark_id, error.sha256)
        return use(_score(services, caller, upload, ruling, key=key))


def _score(
    services: Services,
    caller: Caller,
    upload: Upload,
    benchmarks: Mapping[str, Benchmark],
    *,
    key: str | None,
) -> NewSubmission:
    scored = score_submission(
        upload.claim_json,
        upload.log_files,
        benchmarks,
        file=upload.claim_file,
        benchmark_id=upload.benchmark_id,
        division=upload.division,
        archive=upload.archive,
    )
    benchmark = benchmarks[scored.claim.benchmark_id]
    row = submission_row(caller, upload, scored, benchmark, key=key)
    runs = run_rows(row["id"], scored, upload.logs)
    return NewSubmission(services, caller, upload, scored, benchmark, row, runs)


def _ruling(services: Services, benchmark_id: str, sha256: str) -> Mapping[str, Benchmark]:
    with services.database.read() as session:
        return {benchmark_id: definition(session, sha256)}


def check_idempotency_key(key: str | None) -> None:
    """Raise ContentError unless the key is absent or 1 to 200 printable characters."""
    if key is not None and not (key.strip() and len(key) <= MAX_KEY_LENGTH and key.isprintable()):
        raise ContentError(
            f"Header Idempotency-Key: expected 1 to {MAX_KEY_LENGTH} printable characters."
        )


def find_earlier(
    services: Services, caller: Caller, key: str | None, *, request_sha256: str
) -> Repeated | None:
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
    return Repeated(submission_id)


def _name_source(services: Services, caller: Caller, upload: Upload, earlier: Repeated) -> None:
    """Note the known archive of a result that was imported before without one."""
    if upload.source_commit is None:
        return
    with services.database.write() as session:
        lock_submissions(session, earlier.submission_id)
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


def _store(new: NewSubmission) -> Stored | Repeated:
    services, benchmark = new.services, new.benchmark
    if new.upload.archive and (earlier := _find_published(new)) is not None:
        return earlier
    settled = services.artifacts.settle(new.upload.files)
    with services.database.write() as session:
        admit_new(session, new)
        store = _store_published if new.upload.archive else _store_claim
        submission = store(session, new)
        # Last, so that a failure leaves no file; before the commit, so that a stored submission
        # always has its logs.
        services.artifacts.keep(settled)
    if benchmark.benchmark_id not in services.benchmarks:
        services.benchmarks.offer(shipped_definition(benchmark.benchmark_id))
    runs = [RunView(**run) for run in new.runs]
    return Stored(submission, benchmark_version=benchmark.version, runs=runs)


def _find_published(new: NewSubmission) -> Repeated | None:
    """Find a set of an MLPerf round that was stored under another key.

    The command writes its claim, and a later release writes more fields. An entry of DAWNBench is
    its own bytes, so another key means another entry.
    """
    if new.row["dawnbench"] is not None or not new.runs:
        return None
    published = published_row(new.row, new.scored.claim, new.upload.source_commit)
    with new.services.database.read() as session:
        found = find_published(session, new.row, new.runs, published)
        return None if found is None else Repeated(found)


def admit_new(session: Session, new: NewSubmission) -> None:
    """Check a scored upload against hardware classes, quotas and dates, and complete its row."""
    caller, row, archive = new.caller, new.row, new.upload.archive
    settings = new.services.settings
    if not archive:
        require_own_class(session, new.scored.claim, file=new.upload.claim_file)
    if not caller.is_organiser:
        require_room_for_submission(session, settings, user_id=caller.user_id)
    admission = admit(session, new.benchmark, settings.benchmarks_dir, archive=archive)
    row["embargoed"] = admission.embargoed
    if not archive:
        row["configuration_sha256"] = configuration_sha256(new.benchmark, new.scored.claim)


def _store_claim(session: Session, new: NewSubmission) -> Submission:
    submission = _insert(session, new, published=None)
    # After the version: on PostgreSQL another request with the same logs was waited for.
    refuse_same_logs(session, submission, new.runs)
    emit(session, SubmissionAccepted(submission))
    _link_or_verify(new.services, session, new.caller, submission, new.scored.claim)
    return submission


def _store_published(session: Session, new: NewSubmission) -> Submission:
    published = published_row(new.row, new.scored.claim, new.upload.source_commit)
    submission = _insert(session, new, published=published)
    _record_import(session, new, submission, published)
    return submission


def _insert(session: Session, new: NewSubmission, *, published: Row | None) -> Submission:
    keep_definition(session, new.benchmark, new.services.settings.benchmarks_dir)
    insert_rows(session, new.row, new.runs, published=published)
    raise_board_version(session, new.benchmark.benchmark_id, submission_id=new.row["id"])
    return show_row(new.row, new.caller, published=published)


def _link_or_verify(
    services: Services, session: Session, caller: Caller, submission: Submission, claim: Claim
) -> None:
    if submission.configuration_sha256 is not None:
        join_session(session, submission)
        if mark_duplicate(session, submission):
            return
    _verify_by_policy(services, session, caller, submission, claim)


def _verify_by_policy(
    services: Services, session: Session, caller: Caller, submission: Submission, claim: Claim
) -> None:
    """Request the verification that the policy requires, unless a quota has no room for it."""
    if not is_verified_by_policy(services.benchmarks[submission.benchmark_id], claim):
        return
    if submission not in session:
        join_session(session, submission)
    user_id, reserved = caller.user_id, None
    try:
        if not caller.is_organiser:
            reserved = reserve_replay(
                session, services.settings, submission, user_id=user_id, kind="replay"
            )
    except (UsedUpError, NotAllowedError):
        return
    emit(session, VerificationWanted(submission, user_id, reserved))


def _record_import(
    session: Session, new: NewSubmission, submission: Submission, published: Row
) -> None:
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

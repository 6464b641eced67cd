"""Accept logs or code: check and score first, then store everything in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from finishline.rules.archive.definitions import shipped_definitions, shipped_texts
from finishline.rules.benchmarks.accelerators import accelerators_of_cloud, is_same_kind
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError
from finishline.rules.scoring.latency import InferenceResult
from finishline.rules.scoring.scoring import Result
from finishline.rules.submissions.claim import NOTHING, Claim
from finishline.rules.submissions.submission import score_submission
from finishline.rules.verification.replay import why_not_replayable
from server.base.board_versions import raise_board_version
from server.base.database import Services, utc_now
from server.base.errors import ConflictError, ContentError, NotAllowedError, UsedUpError, problem
from server.base.events import SubmissionAccepted, VerificationWanted, emit
from server.base.fleet import may_have
from server.base.models import (
    HardwareClassRow,
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
    User,
)
from server.base.visibility import ORGANISER, Viewer
from server.benchmarks.definitions import put_in_force
from server.benchmarks.in_force import PhaseWatch
from server.benchmarks.phases import admit
from server.people.audit import record
from server.people.callers import Caller
from server.submissions.code import read_code, refuse_known, require_parent
from server.submissions.quotas import require_room_for_submission, reserve_replay
from server.submissions.rows import (
    SAID,
    find_published,
    new_id,
    no_result,
    result_figures,
    run_rows,
    source_row,
    table_of,
)
from server.submissions.standing_changes import configuration_sha256, mark_duplicate
from server.submissions.upload import CodeUpload, LogUpload, Upload

MOST_TOLD = 20
MAX_KEY_LENGTH = 200


@dataclass(frozen=True)
class Accepted:
    """A stored submission, of this request or of an earlier one (key, archive)."""

    submission_id: str
    repeated: bool = False


@dataclass(frozen=True)
class Checked:
    """A checked upload, with its result. Code has a `package` in place of runs."""

    services: Services
    caller: Caller
    upload: Upload
    claim: Claim
    benchmark: Benchmark
    result: Result | InferenceResult
    runs: Sequence[RunRow] = ()
    package: TrainingPackage | None = None


def accept(services: Services, caller: Caller, upload: Upload, *, key: str | None) -> Accepted:
    """Check, score and store an upload of either kind, once for each idempotency key."""
    if key is not None and not (key.strip() and len(key) <= MAX_KEY_LENGTH and key.isprintable()):
        raise ContentError(
            f"Header Idempotency-Key: expected 1 to {MAX_KEY_LENGTH} printable characters."
        )
    find = partial(_find_earlier, services, caller, upload, key)
    accepted = find()
    try:
        accepted = accepted or _store(check_upload(services, caller, upload), key)
    except (IntegrityError, ConflictError):
        # Two requests under one key came at the same time. The other one won.
        accepted = find()
        if accepted is None:
            raise
    if accepted.repeated:
        _name_source(services, caller, upload, accepted)
    return accepted


def _find_earlier(
    services: Services, caller: Caller, upload: Upload, key: str | None
) -> Accepted | None:
    if key is None:
        return None
    earlier = select(Submission.id, Submission.request_sha256).where(
        Submission.user_id == caller.user_id, Submission.idempotency_key == key
    )
    with services.database.read(ORGANISER) as session:
        found = session.execute(earlier).one_or_none()
    if found is None:
        return None
    if found.request_sha256 != upload.sha256:
        raise ConflictError(
            f"This Idempotency-Key was used for submission {found.id} with other content; "
            "use a new key for a new submission."
        )
    return Accepted(found.id, repeated=True)


def check_upload(services: Services, caller: Caller, upload: Upload) -> Checked:
    """Check an upload against the rules. Raises a RuleError or a ServerError with every problem."""
    if upload.archive and not caller.is_organiser:
        raise NotAllowedError(
            "Only an organiser may hand in an archive.",
            hint="Take an organiser's token, or send what is yours without the field archive.",
        )
    offered = services.benchmarks
    if isinstance(upload, CodeUpload):
        with services.database.read() as session:
            claim, package = read_code(session, caller, upload, offered)
        benchmark = offered[claim.benchmark_id]
        result = no_result(benchmark)
        return Checked(services, caller, upload, claim, benchmark, result, package=package)
    benchmarks = shipped_definitions() | dict(offered) if upload.archive else offered
    scored = score_submission(
        upload.claim_json,
        upload.log_files,
        benchmarks,
        file=upload.claim_file,
        benchmark_id=upload.benchmark_id,
        division=upload.division,
        archive=upload.archive,
    )
    benchmark, runs = benchmarks[scored.claim.benchmark_id], run_rows(scored, upload.logs)
    return Checked(services, caller, upload, scored.claim, benchmark, scored.result, runs)


def admit_upload(session: Session, new: Checked) -> Submission:
    """Check an upload against stored classes, quotas and dates, and make its submission."""
    caller, upload = new.caller, new.upload
    if new.package is not None:
        viewer = Viewer(user_ids=(caller.user_id,), sees_all=caller.is_organiser)
        require_parent(session, viewer, new.package)
        refuse_known(session, caller, new.package)
    elif isinstance(upload, LogUpload) and not upload.archive:
        _require_own_class(session, new.claim, file=upload.claim_file)
    if not caller.is_organiser:
        require_room_for_submission(session, user_id=caller.user_id)
    embargoed = admit(session, new.benchmark, archive=upload.archive)
    return _build(session, new, embargoed=embargoed)


def _build(session: Session, new: Checked, *, embargoed: bool) -> Submission:
    caller, upload, claim, benchmark = new.caller, new.upload, new.claim, new.benchmark
    configuration = published = None
    if upload.archive:
        published = PublishedResult(
            organisation=claim.organisation,
            published_on=claim.submitted_on,
            source=source_row(benchmark.benchmark_id, upload.source_commit),
        )
    else:
        configuration = configuration_sha256(benchmark, claim, new.package)
    return Submission(
        id=new_id(),
        user_id=caller.user_id,
        user=session.get_one(User, caller.user_id),
        benchmark_sha256=benchmark.sha256,
        **{name: getattr(claim, name) for name in SAID},
        system=table_of(claim.system),
        hyperparameters=dict(claim.hyperparameters),
        claim_sha256=upload.document.sha256,
        dawnbench=dict(claim.dawnbench) if claim.dawnbench is not None else None,
        status="claimed",
        trained_with=claim.trained_with,
        tuning=table_of(claim.tuning) if claim.tuning is not None else None,
        **result_figures(new.result),
        request_sha256=upload.sha256,
        submitted_at=utc_now(),
        evidence="published" if upload.archive else "claimed",
        check_word=None if upload.archive else "none",
        embargoed=embargoed,
        configuration_sha256=configuration,
        published=published,
        package=new.package,
        runs=list(new.runs),
    )


def _store(new: Checked, key: str | None) -> Accepted:
    services, benchmark, upload = new.services, new.benchmark, new.upload
    services.artifacts.settle(upload.staged)
    with services.database.write() as session:
        submission = admit_upload(session, new)
        if (known := find_published(session, submission)) is not None:
            return Accepted(known, repeated=True)
        if benchmark.benchmark_id not in services.benchmarks:
            put_in_force(session, benchmark, shipped_texts()[benchmark.benchmark_id])
        submission.idempotency_key = key
        session.add(submission)
        session.flush()
        raise_board_version(session, benchmark.benchmark_id, submission_id=submission.id)
        if upload.archive:
            _record_import(session, new, submission)
        else:
            refuse_same_logs(session, submission)
            emit(session, SubmissionAccepted(submission))
            _link_or_verify(session, new, submission)
        # Last, so that a failure leaves no file. Before the commit, so that a stored submission
        # always has its files.
        services.artifacts.keep(upload.staged)
    if benchmark.benchmark_id not in services.benchmarks:
        services.of(PhaseWatch).look_once()
    return Accepted(submission.id)


def _require_own_class(session: Session, claim: Claim, *, file: str) -> None:
    own = claim.system.hardware_class
    row = session.get(HardwareClassRow, own)
    misfit = None if row is None else _misfit(row, asdict(claim.system))
    if misfit is not None:
        name, found, expected = misfit
        raise ClaimError(
            f"got {found}",
            file=file,
            field=f"system.{name}",
            expected=f"{expected}, as hardware class {own} has; name the class of your machine, or "
            "another name if it is in none (GET /api/v1/hardware-classes lists them)",
            code="hardware_class_contradicts_claim",
        )


def _misfit(row: HardwareClassRow, system: Mapping[str, Any]) -> tuple[str, object, object] | None:
    """Find the first figure of a system that contradicts its class: field, found, expected."""
    count = system.get("accelerator_count") or 0
    if count != row.accelerator_count:
        return "accelerator_count", count, row.accelerator_count
    processors = system.get("processor_count")
    if not may_have(row, processors):
        return "processor_count", processors, row.processor_count
    rented = accelerators_of_cloud(system.get("cloud"))
    if rented is not None and not row.accelerator_count:
        found = f"{system['cloud']['instance']} with {rented.words}"
        return "cloud.instance", found, "an instance without accelerators"
    name = (system.get("accelerator") or "").strip()
    if name.casefold() in NOTHING:
        return None
    if not row.accelerator_count:
        return "accelerator", name, "none"
    if row.accelerator and not is_same_kind(name, row.accelerator):
        return "accelerator", name, row.accelerator
    return None


def refuse_same_logs(session: Session, submission: Submission) -> None:
    """Raise ConflictError if a live submission of the benchmark has a byte-identical log."""
    files = {run.log_sha256: run.file for run in submission.runs}
    if not files:
        return
    # Ask for logs only: with a join, SQLite searches all submissions of the benchmark, in its one
    # writer.
    holders = select(RunRow.submission_id).where(RunRow.log_sha256.in_(files))
    ids = set(session.scalars(holders)) - {submission.id}
    if not ids:
        return
    found = session.execute(
        select(RunRow.file, RunRow.log_sha256, Submission.id, Submission.embargoed)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            RunRow.log_sha256.in_(files),
            Submission.id.in_(ids),
            Submission.benchmark_id == submission.benchmark_id,
            Submission.withdrawn_at.is_(None),
        )
        .order_by(RunRow.submission_id, RunRow.index)
        .limit(MOST_TOLD)
    ).all()
    problems = []
    for row in found:
        named = "a log of another submission, which is under embargo"
        if not row.embargoed:
            named = f"{row.file} of submission {row.id} (/submissions/{row.id})"
        expected = "the log of a training that was not handed in before"
        file = files[row.log_sha256]
        problems.append(problem("runs", f"byte for byte {named}", expected, file=file))
    if problems:
        raise ConflictError(
            f"{problems[0]['file']} is {problems[0]['message']}.",
            hint="Send the logs of other trainings, or withdraw that submission if it is yours.",
            problems=problems,
        )


def _link_or_verify(session: Session, new: Checked, submission: Submission) -> None:
    """Mark a duplicate, or request a verification. With a full quota only code is refused."""
    if submission.configuration_sha256 is not None and mark_duplicate(session, submission):
        return
    if new.package is None:
        replay = new.benchmark.replay
        wanted = replay is not None and replay.automatic
        if not wanted or why_not_replayable(new.benchmark, new.claim) is not None:
            return
    try:
        reserved = reserve(session, new, submission)
    except (UsedUpError, NotAllowedError):
        if new.package is not None:
            raise
        return
    emit(session, VerificationWanted(submission, new.caller.user_id, reserved))


def reserve(session: Session, new: Checked, submission: Submission) -> float | None:
    """Reserve accelerator seconds on a submitter's quota. Raises UsedUpError, NotAllowedError."""
    if new.caller.is_organiser:
        return None
    kind = "replay" if new.package is None else "entry"
    return reserve_replay(session, submission, user_id=new.caller.user_id, kind=kind)


def _record_import(session: Session, new: Checked, submission: Submission) -> None:
    published = submission.published
    after = {
        "benchmark": submission.benchmark_id,
        "organisation": published and published.organisation,
        # Named "archive", because "source" is where the action came from.
        "archive": published and published.source,
        "commit": new.upload.source_commit,
        "logs": len(new.runs),
        "claim_sha256": submission.claim_sha256,
        "tta_seconds": submission.tta_seconds,
    }
    record(session, new.caller, "archive.import", submission, after=after)


def _name_source(services: Services, caller: Caller, upload: Upload, earlier: Accepted) -> None:
    """Add the known archive to a result imported earlier without it."""
    if upload.source_commit is None:
        return
    with services.database.write() as session:
        submission = session.get_one(Submission, earlier.submission_id)
        published = submission.published
        source = source_row(submission.benchmark_id, upload.source_commit)
        if source is None or published is None or published.source is not None:
            return
        published.source = source
        before, after = {"archive": None}, {"archive": source}
        record(session, caller, "archive.source", submission, before=before, after=after)
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)

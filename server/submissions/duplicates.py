"""Duplicates: a submission with the configuration of an earlier live one links to it.

It is not trained and has no rank while the original is there. If the original ends without a time
or is withdrawn, the oldest duplicate takes its place. A submission that nobody trains is nobody's
original: it would keep others from being trained.
"""

from typing import Any

from sqlalchemy import Select, exists, or_, select, tuple_
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.submissions.claim import Claim, trained_settings
from server.base.board_versions import raise_board_version
from server.base.events import (
    DuplicateMarked,
    EmbargoLifted,
    OriginalReplaced,
    SubmissionWithdrawn,
    emit,
)
from server.base.models import Submission, TrainingPackage, Verification
from server.base.standing import OPEN
from server.benchmarks.definitions import definition, rules_that_differ


def configuration_sha256(
    benchmark: Benchmark, claim: Claim, package: TrainingPackage | None = None
) -> str | None:
    """Key of what would be trained for a submission; None where its own training is unknown."""
    if package is None:
        if claim.trained_with != "reference" or claim.kind == "inference":
            return None
        offered = benchmark.replay.precisions if benchmark.replay is not None else ()
        if offered and claim.precision not in (None, *offered):
            return None
    environment = None if package is None else package.environment_sha256
    program = None if package is None else package.program_sha256
    found = configuration_of(benchmark, claim, environment=environment, program=program)
    return sha256_of(found)


def mark_duplicate(session: Session, submission: Submission) -> bool:
    """Link a submission to the live original of its configuration; returns if there is one."""
    benchmark = definition(session, submission.benchmark_sha256)
    original = find_original(session, submission, benchmark)
    if original is None:
        return False
    link(session, submission, original)
    return True


def find_original(
    session: Session, submission: Submission, benchmark: Benchmark, *, is_back: bool = False
) -> Submission | None:
    """The earlier live one of a submission's configuration and rules; None under embargo.

    Nobody may learn there what others have handed in. To one that was withdrawn and `is_back`, each
    that is live is earlier.
    """
    key = submission.configuration_sha256
    if key is None or submission.embargoed:
        return None
    under_way = exists().where(
        Verification.submission_id == Submission.id, Verification.state.in_(OPEN)
    )
    earlier_one = tuple_(Submission.submitted_at, Submission.id) < (
        submission.submitted_at,
        submission.id,
    )
    candidates = session.scalars(
        _live(key).where(
            Submission.id != submission.id if is_back else earlier_one,
            Submission.duplicate_of.is_(None),
            Submission.embargoed.is_(False),
            or_(Submission.evidence == "measured", under_way),
        )
    )
    for one in candidates.unique():
        earlier = definition(session, one.benchmark_sha256)
        if earlier.sha256 == benchmark.sha256 or not rules_that_differ(earlier, benchmark):
            return one
    return None


def link(session: Session, submission: Submission, original: Submission) -> None:
    """Make a submission a duplicate, with its own duplicates."""
    session.flush()
    own = select(Submission).where(Submission.duplicate_of == submission.id)
    for each in (submission, *session.scalars(own).unique().all()):
        each.duplicate_of, each.pool_id = original.id, None
        raise_board_version(session, each.benchmark_id, submission_id=each.id)
        emit(session, DuplicateMarked(each))


def mark_after_embargo(session: Session, event: EmbargoLifted) -> None:
    """Mark the duplicates among submissions whose embargo has ended, the oldest first."""
    shown = Submission.id.in_(event.submission_ids)
    query = select(Submission).where(shown, Submission.withdrawn_at.is_(None))
    for one in session.scalars(query.order_by(Submission.submitted_at, Submission.id)).unique():
        mark_duplicate(session, one)


def bring_back(session: Session, submission: Submission) -> None:
    """Let a submission that was withdrawn be a duplicate again, an original, or be trained."""
    replaced, submission.duplicate_of = submission.duplicate_of, None
    session.flush()
    benchmark = definition(session, submission.benchmark_sha256)
    original = find_original(session, submission, benchmark, is_back=True)
    if original is not None:
        link(session, submission, original)
    elif replaced is not None:
        emit(session, OriginalReplaced(submission, session.get_one(Submission, replaced)))


def replace_withdrawn(session: Session, event: SubmissionWithdrawn) -> None:
    """Let the oldest duplicate take the place of a submission that was withdrawn."""
    replace_original(session, event.submission)


def replace_timeless(session: Session, submission: Submission) -> None:
    """Let the oldest duplicate take the place of a submission that ended without a time."""
    waits = select(Verification.id).where(
        Verification.submission_id == submission.id, Verification.state.in_(OPEN)
    )
    if submission.evidence != "measured" and session.scalar(waits.limit(1)) is None:
        replace_original(session, submission)


def replace_original(session: Session, original: Submission) -> None:
    """Make the oldest live duplicate the original; it takes over the runs, or is trained."""
    if original.configuration_sha256 is None:
        return
    session.flush()
    query = _live(original.configuration_sha256).where(Submission.duplicate_of == original.id)
    duplicates = list(session.scalars(query).unique())
    if not duplicates:
        return
    first, *others = duplicates
    first.duplicate_of, first.pool_id = None, original.pool_id
    for other in others:
        other.duplicate_of = first.id
    if original.withdrawn_at is None:
        original.pool_id = None
    else:  # The records still have its time as a holder.
        original.duplicate_of = first.id
    for each in (original, first, *others):
        raise_board_version(session, each.benchmark_id, submission_id=each.id)
    session.flush()
    emit(session, OriginalReplaced(first, original))


def _live(configuration: str) -> Select[Submission]:
    return (
        select(Submission)
        .where(Submission.configuration_sha256 == configuration, Submission.withdrawn_at.is_(None))
        .order_by(Submission.submitted_at, Submission.id)
    )


def configuration_of(
    benchmark: Benchmark,
    claim: Claim,
    *,
    environment: str | None = None,
    program: str | None = None,
) -> dict[str, Any]:
    """The configuration that a claim names: equal ones have one hash, however a claim writes them.

    Its `settings` are those that are trained, with the reference's defaults. Of a code submission
    it has `code` instead: the hash of its `program`, the hash of its `environment`, and the files
    and limits of its benchmark.
    """
    settings = benchmark.defaults() | trained_settings(benchmark, claim)
    configuration: dict[str, Any] = {
        "benchmark": benchmark.benchmark_id,
        "division": claim.division,
        "hardware_class": claim.system.hardware_class,
        "settings": {name: float(value) for name, value in settings.items()},
    }
    policy, replay = benchmark.trainings, benchmark.replay
    if claim.package is not None and policy is not None:
        code = {
            "program": program or claim.package,
            "environment": environment,
            "files": dict(policy.files),
            "limits": [policy.threads, policy.max_evaluations, policy.prepare_seconds],
        }
        return configuration | {"settings": {}, "code": code}
    precision = replay.told(claim.precision) if replay is not None else None
    return configuration if precision is None else configuration | {"precision": precision}

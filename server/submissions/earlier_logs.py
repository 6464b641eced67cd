"""Logs of a submission that an earlier one to the same benchmark has: found by their hashes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Table,
    bindparam,
    exists,
    false,
    func,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import Session

from rules.earlier_logs import (
    DOUBTED,
    Copy,
    EarlierRun,
    LoggedRun,
    WithdrawnBy,
    find_copies,
    own_again,
)
from server.errors import ConflictError, problem_of
from server.models import Attempt, RunRow, Submission, User, Verification
from server.verifications.publishing import KIND_THAT_CHECKS
from server.withdrawals.cut_short import CUT_SHORT

# Own ones come first: a thousand copies by others hide none of them.
MOST_CANDIDATES = 200
# The first of them: SQLite takes no more than 32,766 values in a statement.
MOST_ALIKE = 20_000

_RUNS = cast(Table, RunRow.__table__).c
# A union, as no index serves both; on its own, so that no database begins with all submissions of
# the benchmark. Mostly it finds nothing.
_ALIKE = (
    union(
        *(
            select(_RUNS.id).where(
                hashed.in_(bindparam(name, expanding=True)),
                _RUNS.submission_id != bindparam("submission_id"),
            )
            for name, hashed in (("logs", _RUNS.log_sha256), ("trainings", _RUNS.training_sha256))
        )
    )
    .order_by("id")
    .limit(MOST_ALIKE)
)
# A worker had begun on it.
_BEGUN_AND_CUT_SHORT = exists(
    select(Attempt.id)
    .join(Verification, Verification.id == Attempt.verification_id)
    .where(
        Verification.submission_id == Submission.id,
        Verification.kind.in_(KIND_THAT_CHECKS.values()),
        CUT_SHORT,
        Attempt.started_at.is_not(None),
    )
    .correlate(Submission)
)


@dataclass(frozen=True)
class _Found:
    """An earlier run, and whether its submission is not everybody's to see."""

    run: EarlierRun
    embargoed: bool


def logged_run(run: Mapping[str, Any]) -> LoggedRun:
    """A run as it is about to be stored."""
    return LoggedRun(run["file"], run["log_sha256"], run["training_sha256"])


def hold_against_earlier(
    session: Session, submission: Submission, runs: Sequence[LoggedRun]
) -> None:
    """Mark a submission that is being stored where its logs were handed in before.

    Raises ConflictError naming the earlier submission and the files if its submitter did; an
    archive is what was published elsewhere, and published twice is no fault of who imports it.
    """
    found = _with_runs_in_common(session, submission, runs)
    copies, listed = _copies(submission, runs, found)
    again = [] if submission.archive else own_again(copies)
    if again:
        raise ConflictError(f"{again[0]}.", problems=[problem_of(problem) for problem in again])
    if listed:
        submission.copies = listed
        submission.eligible = submission.eligible and submission.archive
        session.execute(
            update(Submission)
            .where(Submission.id == submission.id)
            .values(copies=submission.copies, eligible=submission.eligible)
        )


def require_not_handed_in_again(session: Session, submission: Submission) -> None:
    """Raise ConflictError if its submitter handed in its logs anew while it was withdrawn."""
    if submission.archive:
        return
    runs = _logged(submission)
    found = _with_runs_in_common(session, submission, runs)
    again = own_again(find_copies(runs, [each.run for each in found if each.run.is_own]))
    if again:
        raise ConflictError(f"{again[0]}.", problems=[problem_of(problem) for problem in again])


def list_copies(
    session: Session, submission: Submission, runs: Sequence[LoggedRun]
) -> list[dict[str, Any]] | None:
    """What of a stored submission was handed in before it, as it is stored; None if nothing.

    `runs` are its runs as they are derived at the moment.
    """
    return _copies(submission, runs, _earlier(session, submission, runs))[1] or None


def copies_of_others(session: Session, submission: Submission) -> list[tuple[Copy, bool]]:
    """Which runs are somebody else's earlier ones, and whether those are under embargo."""
    runs = _logged(submission)
    found = _earlier(session, submission, runs)
    others = [each for each in found if not each.run.is_own]
    hidden = {each.run.submission_id for each in others if each.embargoed}
    copies = find_copies(runs, [each.run for each in others])
    return [(copy, copy.earlier.submission_id in hidden) for copy in copies]


def _copies(
    submission: Submission, runs: Sequence[LoggedRun], found: Sequence[_Found]
) -> tuple[list[Copy], list[dict[str, Any]]]:
    copies = find_copies(runs, [each.run for each in found], archive=submission.archive)
    hidden = {each.run.submission_id for each in found if each.embargoed}
    return copies, [_stored(copy, hidden) for copy in copies]


def _stored(copy: Copy, hidden: set[str]) -> dict[str, Any]:
    """A copy as everybody may read of it: what is under embargo is not named, now or later."""
    is_hidden = copy.earlier.submission_id in hidden
    return {
        "file": copy.file,
        "same": copy.same,
        "submission_id": None if is_hidden else copy.earlier.submission_id,
        "submission_file": None if is_hidden else copy.earlier.run.file,
    }


def _logged(submission: Submission) -> list[LoggedRun]:
    return [LoggedRun(run.file, run.log_sha256, run.training_sha256) for run in submission.runs]


def _earlier(session: Session, submission: Submission, runs: Sequence[LoggedRun]) -> list[_Found]:
    is_earlier = Submission.submitted_at <= submission.submitted_at
    return _with_runs_in_common(session, submission, runs, is_earlier)


def _with_runs_in_common(
    session: Session,
    submission: Submission,
    runs: Sequence[LoggedRun],
    *conditions: ColumnElement[bool],
) -> list[_Found]:
    """Runs of other submissions with a log or a training in common, own ones first.

    While a submission is being stored all that is there came before it, whatever the clocks say.
    Own ones that were withdrawn before a check of them said anything leave their logs to their
    submitter (rules.earlier_logs), and are left out: handed in and withdrawn often enough, they
    would take every place of somebody else's.
    """
    logs = {run.log_sha256 for run in runs}
    trainings = {run.training_sha256 for run in runs if run.training_sha256 is not None}
    if not logs:
        return []
    session.flush()  # As before each statement of the session's own.
    same = {"logs": [*logs], "trainings": [*trainings], "submission_id": submission.id}
    alike = session.connection().scalars(_ALIKE, same).all()
    if not alike:
        return []
    rows = session.execute(
        select(
            RunRow.file,
            RunRow.log_sha256,
            RunRow.training_sha256,
            Submission.id,
            Submission.user_id,
            Submission.submitted_at,
            Submission.status,
            Submission.embargoed,
            Submission.withdrawn_at,
            Submission.withdrawn_by,
            _BEGUN_AND_CUT_SHORT.label("cut_short"),
            User.name.label("submitter"),
        )
        .join(Submission, Submission.id == RunRow.submission_id)
        .join(User, User.id == Submission.user_id)
        .where(
            RunRow.id.in_(alike),
            Submission.benchmark_id == submission.benchmark_id,
            or_(
                Submission.user_id != submission.user_id,
                Submission.withdrawn_at.is_(None),
                Submission.withdrawn_by != User.name,
                Submission.status.in_(DOUBTED),
                _BEGUN_AND_CUT_SHORT,
            ),
            *conditions,
        )
        .order_by(
            (Submission.user_id == submission.user_id).desc(), Submission.submitted_at, RunRow.id
        )
        .limit(MOST_CANDIDATES)
    ).all()
    others = any(row.user_id != submission.user_id for row in rows)
    own_since = _own_since(session, submission, alike) if others else {}
    return [_found(row, submission.user_id, own_since) for row in rows]


def _own_since(
    session: Session, submission: Submission, alike: Sequence[int]
) -> dict[str, datetime]:
    """When its submitter first handed in each log and each training, whatever became of that.

    Not what they imported as an archive: that is of whoever published it.
    """
    rows = session.execute(
        select(RunRow.log_sha256, RunRow.training_sha256, func.min(Submission.submitted_at))
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            RunRow.id.in_(alike),
            Submission.benchmark_id == submission.benchmark_id,
            Submission.user_id == submission.user_id,
            Submission.archive.is_(false()),
        )
        .group_by(RunRow.log_sha256, RunRow.training_sha256)
    )
    since: dict[str, datetime] = {}
    for log, training, moment in rows:
        for name in (log, training):
            if name is not None:
                since[name] = min(moment, since.get(name, moment))
    return since


def _is_after_own(row: Any, user_id: int, own_since: Mapping[str, datetime]) -> bool:
    moments = [own_since.get(name) for name in (row.log_sha256, row.training_sha256)]
    is_after = any(moment is not None and moment < row.submitted_at for moment in moments)
    return row.user_id != user_id and is_after


def _found(row: Any, user_id: int, own_since: Mapping[str, datetime]) -> _Found:
    run = EarlierRun(
        run=LoggedRun(row.file, row.log_sha256, row.training_sha256),
        submission_id=row.id,
        is_own=row.user_id == user_id,
        status=row.status,
        withdrawn_by=_withdrawn_by(row),
        cut_short=row.cut_short,
        is_after_own=_is_after_own(row, user_id, own_since),
    )
    return _Found(run, embargoed=row.embargoed)


def _withdrawn_by(row: Any) -> WithdrawnBy | None:
    if row.withdrawn_at is None:
        return None
    return "submitter" if row.withdrawn_by == row.submitter else "organiser"

"""Read verifications, and the reason why one is still waiting."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import (
    func,
    select,
)
from sqlalchemy.orm import Session, selectinload, undefer

from finishline.rules.scoring.run import Evaluation, evaluation_of
from finishline.rules.text import count_text
from finishline.rules.verification.messages import ReplayRun
from server.base.database import utc_now
from server.base.errors import NotFoundError
from server.base.models import (
    Attempt,
    ReplayEventRow,
    Submission,
    Verification,
    WorkerRow,
)
from server.base.standing import SHOWN, lock_verification, published_verification, report_of
from server.base.viewer import ORGANISER, seeing
from server.submissions.service import runs_with_curves
from server.verifications.holds import read_pauses


def find_attempt(session: Session, attempt_id: str) -> Attempt:
    """Read an attempt by id. Raises NotFoundError."""
    attempt = session.get(Attempt, attempt_id)
    if attempt is None:
        raise NotFoundError(f"There is no attempt {attempt_id!r}.")
    return attempt


def lock_attempt(session: Session, attempt_id: str) -> Attempt:
    """Read an attempt with its verification locked: see lock_verification. Raises NotFoundError."""
    attempt = find_attempt(session, attempt_id)
    lock_verification(session, attempt.verification_id)
    session.refresh(attempt)
    return attempt


def list_verifications(session: Session, *, state: str | None, limit: int) -> list[Verification]:
    """Verifications, newest first."""
    query = (
        select(Verification)
        .order_by(Verification.created_at.desc())
        .limit(limit)
        .options(
            *SHOWN, selectinload(Verification.submission).selectinload(Submission.verifications)
        )
    )
    if state is not None:
        query = query.where(Verification.state == state)
    return list(session.scalars(query))


def latest_of(session: Session, submission: Submission, *, most: int) -> Sequence[Verification]:
    """Latest verifications of a submission, newest first, and the published one if it is older.

    Their reasons and attempts are loaded.
    """
    latest = {verification.id for verification in submission.verifications[-most:]}
    published = published_verification(submission)
    wanted = latest if published is None else latest | {published.id}
    return session.scalars(
        select(Verification)
        .where(Verification.id.in_(wanted))
        .order_by(Verification.created_at.desc())
        .options(undefer(Verification.reasons), selectinload(Verification.attempts))
    ).all()


def alive_workers(session: Session, *, alive_seconds: float) -> list[WorkerRow]:
    """Workers that said hello lately and are not stopping."""
    since = utc_now() - timedelta(seconds=alive_seconds)
    return list(
        session.scalars(
            select(WorkerRow).where(WorkerRow.last_seen_at >= since, WorkerRow.state != "stopping")
        )
    )


def waiting_for(
    session: Session, verification: Verification, *, alive_seconds: float
) -> str | None:
    """Reason why a verification is still queued and the remedy; None unless it is queued."""
    if verification.state != "queued":
        return None
    if verification.witness_token_id is not None:
        return "Waits for the submitter's machine to start a worker with the witness's token."
    workers = alive_workers(session, alive_seconds=alive_seconds)
    if not workers:
        return (
            "No worker is connected: start one with 'finishline up' on this machine or "
            "'python -m worker' on another."
        )
    if all(worker.confirmed_at is None for worker in workers):
        return (
            "No connected worker is confirmed: an organiser does it once, with "
            "'finishline workers confirm NAME' or on the console's page of workers."
        )
    if all(worker.drift is not None for worker in workers):
        return (
            "Every connected worker is out, because it is not as fast as it was; the page of the "
            "workers says how far each is off. They measure again once a minute."
        )
    submission = verification.submission
    paused = read_pauses(session).why(submission.system["hardware_class"] if submission else None)
    if paused is not None:
        return f"Nothing starts: {paused}."
    if all(worker.held is not None for worker in workers):
        return (
            "Every connected worker is paused or drained; the page of the workers says who "
            "held each and why."
        )
    others = _queued_beside(session)
    busy = sum(worker.state == "busy" for worker in workers)
    if others == 0 and busy < len(workers):
        return "A worker is about to take it."
    queue = "Next in line" if others == 0 else f"In line with {others} more"
    return f"{queue}; {busy} of {count_text(len(workers), 'worker')} busy."


def _queued_beside(session: Session) -> int:
    """Number of other queued attempts. Only the whole queue tells which of them go first.

    Counted by an index: excluding this attempt would read every row.
    """
    queued = select(func.count()).select_from(Verification).where(Verification.state == "queued")
    with seeing(session, ORGANISER):
        count = session.scalar(queued) or 0
    return max(count - 1, 0)


def events_after(
    session: Session, attempt: Attempt, sequence: int, *, limit: int
) -> list[ReplayEventRow]:
    """Events that a worker posted for an attempt after a sequence number, in order."""
    return list(
        session.scalars(
            select(ReplayEventRow)
            .where(ReplayEventRow.attempt_id == attempt.id, ReplayEventRow.sequence > sequence)
            .order_by(ReplayEventRow.sequence)
            .limit(limit)
        )
    )


def claimed_curves(session: Session, submission: Submission) -> list[list[Evaluation]]:
    """Evaluations of a stored submission's runs, in the order of `claimed_runs`."""
    return [
        [evaluation_of(row) for row in run.curve]
        for run in runs_with_curves(session, submission.id)
    ]


def own_again(session: Session, verification: Verification) -> list[ReplayRun]:
    """Runs of the claim's own seeds from workers of other owners, the latest last."""
    own = verification.seeds[: verification.own_runs]
    rows = session.scalars(
        select(Verification)
        .where(Verification.checks_id == verification.id, Verification.report.is_not(None))
        .order_by(Verification.created_at)
    )
    reports = [found for row in rows if (found := report_of(row)) is not None]
    return [run for report in reports for run in report.runs if run.seed in own]

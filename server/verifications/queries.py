"""Read verifications, and the reason why one is still waiting."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import (
    func,
    select,
)
from sqlalchemy.orm import Session, selectinload, undefer

from finishline.api.verifications import VerificationView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.measurements import Figure
from finishline.rules.scoring.run import Evaluation, evaluation_of
from finishline.rules.text import count_text
from finishline.rules.verification.duel import Duel, judge_duel, pair_runs
from finishline.rules.verification.messages import ReplayRun
from server.base.database import utc_now
from server.base.errors import NotFoundError
from server.base.models import (
    Attempt,
    ReplayEventRow,
    Submission,
    Verification,
    WorkerProbeRow,
    WorkerRow,
)
from server.base.standing import SHOWN, lock_verification, published_verification, report_of
from server.base.viewer import ORGANISER, seeing
from server.benchmarks.prices import price_of_submission
from server.benchmarks.queries import definition
from server.submissions.service import runs_with_curves
from server.verifications.free_workers import read_pauses
from server.verifications.views import verification_view

ROOFS_LOOKED_AT = 5  # A probe can come without roofs, from a worker that was stopped while it did.


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


def view(
    session: Session,
    verification: Verification,
    *,
    alive_seconds: float,
    with_report: bool = True,
    with_band: bool = True,
    benchmark: Benchmark | None = None,
    owners: Mapping[str, int] | None = None,
) -> VerificationView:
    """View of a verification, with the reason why it still waits.

    Without its report all figures derived from it are left out, without its band the control
    points. `owners` saves the statement that counts them, for a list.
    """
    if owners is None:
        owners = owners_of(session, [verification])
    if benchmark is None:
        benchmark = definition(session, verification.benchmark_sha256)
    submission = verification.submission
    return verification_view(
        verification,
        benchmark=benchmark,
        waiting_for=waiting_for(session, verification, alive_seconds=alive_seconds),
        duel=_judged_duel(verification, benchmark) if with_report else None,
        figures=_roofs_of_worker(session, verification) if with_report else None,
        price=price_of_submission(session, submission) if submission is not None else None,
        with_report=with_report,
        with_band=with_band,
        owners=owners.get(verification.id, 0),
    )


def owners_of(session: Session, verifications: Sequence[Verification]) -> dict[str, int]:
    """Number of worker owners that agree on each: its own, and those of cross-checks.

    A verification without a report is left out. Reports are long, so the state of its attempts
    decides: an attempt with a report is done.
    """
    reported = [v.id for v in verifications if any(a.state == "done" for a in v.attempts)]
    if not reported:
        return {}
    agreed = session.execute(
        select(Verification.checks_id, func.count())
        .where(Verification.checks_id.in_(reported), Verification.outcome == "verified")
        .group_by(Verification.checks_id)
    )
    return dict.fromkeys(reported, 1) | {name: 1 + count for name, count in agreed if name}


def _roofs_of_worker(session: Session, verification: Verification) -> dict[str, Figure]:
    """Roofs that the reporting worker had last measured when it ended; empty without any."""
    if verification.report is None:
        return {}
    rows = session.scalars(
        select(WorkerProbeRow)
        .where(
            WorkerProbeRow.worker == verification.report["system"]["worker"],
            WorkerProbeRow.moment == "start",
            WorkerProbeRow.measured_at <= (verification.ended_at or utc_now()),
        )
        .order_by(WorkerProbeRow.id.desc())
        .limit(ROOFS_LOOKED_AT)
    )
    found = next((row.figures for row in rows if row.figures), {})
    return {name: Figure(**figure) for name, figure in found.items()}


def _judged_duel(verification: Verification, benchmark: Benchmark) -> Duel | None:
    """Result of a duel from its report; None for another kind or without a report."""
    report = report_of(verification) if verification.against_id is not None else None
    return None if report is None else judge_duel(pair_runs(benchmark, report))


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

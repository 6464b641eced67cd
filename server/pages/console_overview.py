"""The console's first page: open tasks of organisers, each with the next step."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, selectinload

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.database import utc_now
from server.base.models import Attempt, Calibration, Submission, Verification
from server.base.standing import LISTED, OPEN, is_pending
from server.benchmarks.calibrations import count_runs
from server.pages.console_page import AnyoneDep
from server.people.accounts import ORGANISERS
from server.verifications.calibration_views import summary
from server.verifications.queue import Waits
from server.verifications.views import line
from server.verifications.worker_queries import list_workers

MOST = 100
LATELY = timedelta(days=7)
Row = dict[str, Any]


def pending_verdicts(session: Session) -> list[Row]:
    """Verdicts that wait for a decision, the oldest first."""
    rows = session.scalars(
        select(Verification)
        .where(
            Verification.state == "done",
            Verification.kind.in_(("replay", "entry", "latency")),
            Verification.decision.is_(None),
        )
        .order_by(Verification.ended_at)
        .options(selectinload(Verification.submission).selectinload(Submission.verifications))
    )
    return [
        _pending_row(row, row.submission)
        for row in rows
        if row.submission is not None and is_pending(row, row.submission)
    ]


def _pending_row(verification: Verification, submission: Submission) -> Row:
    return {
        "id": verification.id,
        "submission_id": submission.id,
        "model": submission.model,
        "evidence": submission.evidence,
        "system": submission.system,
        "submitter": submission.submitter,
        "display_name": submission.display_name,
        "benchmark": submission.benchmark_id,
        "standing": submission.status,
        "outcome": verification.outcome,
        "ended_at": _text(verification.ended_at),
    }


def under_way(session: Session) -> list[Row]:
    """Queued and running verifications, the latest first, each with the model of its sides."""
    rows = session.scalars(
        select(Verification)
        .where(Verification.state.in_(OPEN))
        .order_by(Verification.created_at.desc())
        .limit(MOST)
        .options(*LISTED)
    )
    waits, found = Waits(session), []
    for row in rows:
        shown = line(session, row, waits)
        models = [side.model for side in (row.submission, row.against) if side is not None]
        found.append(shown.model_dump(mode="json") | {"model": " against ".join(models)})
    return found


def workers_out(session: Session) -> list[Row]:
    """Workers of the last days that are given nothing: off their baseline, or gone silent."""
    since = utc_now() - LATELY
    return [
        worker.model_dump(mode="json")
        for worker in list_workers(session).workers
        if (worker.drift is not None or not worker.alive)
        and worker.state != "stopping"
        and worker.last_seen_at >= since
    ]


def failed_attempts(session: Session) -> list[Row]:
    """Attempts of the last days that ended without a report, the latest first."""
    rows = session.scalars(
        select(Attempt)
        .where(Attempt.state.in_(("failed", "lost")), Attempt.ended_at >= utc_now() - LATELY)
        .order_by(Attempt.ended_at.desc())
        .limit(MOST)
        .options(joinedload(Attempt.verification))
    )
    return [_failed_row(row) for row in rows]


def _failed_row(attempt: Attempt) -> Row:
    failure = attempt.failure or {}
    return {
        "verification_id": attempt.verification_id,
        "verification_state": attempt.verification.state,
        "number": attempt.number,
        "state": attempt.state,
        "worker": attempt.worker,
        "ended_at": _text(attempt.ended_at),
        "message": failure.get("message", "It ended without a message."),
        "next_step": failure.get("next_step", "See the verification."),
    }


def open_calibrations(session: Session, offered: Mapping[str, Benchmark]) -> list[Row]:
    """Calibrations that are under way, or wait to be continued or adopted.

    One that has ended for an earlier definition of its benchmark waits for nothing.
    """
    rows = session.scalars(
        select(Calibration)
        .where(Calibration.adopted_at.is_(None), Calibration.state != "cancelled")
        .order_by(Calibration.created_at.desc())
        .limit(MOST)
    )
    counts = count_runs(session)
    found = [summary(row, finished=counts.get(row.id, 0), offered=offered) for row in rows]
    return [
        each.model_dump(mode="json")
        for each in found
        if each.state == "running" or not each.outdated
    ]


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


router = APIRouter(include_in_schema=False)


@router.get("/console")
def overview(console: AnyoneDep) -> Response:
    """Open tasks of organisers; any other user is redirected to their own account."""
    if console.caller.role not in ORGANISERS:
        return RedirectResponse("/account", status_code=303)
    services = console.services
    with services.database.read(console.viewer) as session:
        context: dict[str, Any] = {
            "pending": pending_verdicts(session),
            "under_way": under_way(session),
            "out": workers_out(session),
            "failed": failed_attempts(session),
            "calibrations": open_calibrations(session, services.benchmarks),
        }
    return console.page("overview.html", **context)

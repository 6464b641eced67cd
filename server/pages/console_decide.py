"""Deciding about the verdict of a rerun, beside the one that is published."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from finishline.api.reruns import DecisionCreate, VerificationComparison
from server.base.models import Submission, Verification
from server.base.standing import (
    find_verification,
    is_pending,
    published_verification,
    report_of,
    require_submission,
)
from server.pages.console_overview import pending_verdicts
from server.pages.console_page import Console, Done, OrganiserDep, filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.verifications.reruns import compare_verifications, decide

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/decide"


@router.get(ADDRESS)
def decisions_page(console: OrganiserDep) -> HTMLResponse:
    """Every verdict that waits."""
    with console.services.database.read(console.viewer) as session:
        pending = pending_verdicts(session)
    return console.page("decisions.html", pending=pending)


@router.get(ADDRESS + "/{verification_id}")
def decision_page(verification_id: str, console: OrganiserDep) -> HTMLResponse:
    """A verdict that waits, beside the published one."""
    return _page(console, verification_id)


@router.post(ADDRESS + "/{verification_id}")
def decide_about(verification_id: str, console: OrganiserDep, form: FormDep) -> Response:
    """Publish a verdict, or keep the published one."""

    def decide_it(session: Session, wanted: DecisionCreate) -> Done:
        decided = decide(session, console.caller, verification_id, wanted)
        became = "is published" if wanted.decision == "publish" else "is kept back"
        return ADDRESS, Notice(f"The verdict of {decided.id}, {decided.outcome}, {became}.")

    page = partial(_page, console, verification_id, typed=form)
    return console.submit(DecisionCreate, filled(form), decide_it, page)


def _page(console: Console, verification_id: str, **form: Any) -> HTMLResponse:
    with console.services.database.read(console.viewer) as session:
        verification = find_verification(session, verification_id)
        submission = require_submission(verification)
        standing = published_verification(submission)
        context: dict[str, Any] = {
            "submission": _submission(submission),
            "standing": _side(standing, submission) if standing is not verification else None,
            "waiting": _side(verification, submission),
            "comparison": _comparison(session, standing, verification),
        }
    return console.page("decision.html", **context, **form)


def _submission(submission: Submission) -> dict[str, Any]:
    return {
        "id": submission.id,
        "model": submission.model,
        "submitter": submission.submitter,
        "benchmark": submission.benchmark_id,
        "status": submission.status,
    }


def _side(verification: Verification | None, submission: Submission) -> dict[str, Any] | None:
    if verification is None:
        return None
    report = report_of(verification)
    return {
        "id": verification.id,
        "outcome": verification.outcome or verification.state,
        "ended_at": verification.ended_at.isoformat() if verification.ended_at else None,
        "worker": report.system.worker if report is not None else None,
        "hardware_class": report.system.hardware_class if report is not None else None,
        "reason": verification.reason,
        "reasons": verification.reasons,
        "pending": is_pending(verification, submission),
        "settled": _settled(verification),
    }


def _settled(verification: Verification) -> str:
    decision = verification.decision
    if decision is None:
        return f"This verification is {verification.state}: it has no verdict to decide about."
    return f"The decision on this verdict was {decision.decision}: {decision.reason}"


def _comparison(
    session: Session, standing: Verification | None, waiting: Verification
) -> VerificationComparison | None:
    """Both replays side by side; latencies have no runs to compare."""
    if standing is None or standing is waiting:
        return None
    if {standing.kind, waiting.kind} != {"replay"}:
        return None
    return compare_verifications(session, standing.id, waiting.id)

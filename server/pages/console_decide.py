"""Deciding about the verdict of a rerun, beside the one that is published."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from server.base.errors import ServerError
from server.base.models import Submission, Verification
from server.base.services import Services, ServicesDep
from server.base.standing import (
    find_verification,
    is_pending,
    published_verification,
    require_submission,
)
from server.pages.console_overview import pending_verdicts
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, FormDep, viewer_for
from server.verifications.rerun_schemas import DecisionCreate
from server.verifications.reruns import compare_verifications, decide, report_of

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/decide"


@router.get(ADDRESS)
def decisions_page(services: ServicesDep, signed_in: ConsoleDep) -> HTMLResponse:
    """Every verdict that waits."""
    with services.database.read(viewer_for(signed_in.caller)) as session:
        pending = pending_verdicts(session)
    return console_page(services, signed_in, "decisions.html", pending=pending)


@router.get(ADDRESS + "/{verification_id}")
def decision_page(
    verification_id: str, services: ServicesDep, signed_in: ConsoleDep
) -> HTMLResponse:
    """A verdict that waits, beside the published one."""
    return _page(services, signed_in, verification_id)


@router.post(ADDRESS + "/{verification_id}")
def decide_about(
    verification_id: str, services: ServicesDep, signed_in: ConsoleDep, form: FormDep
) -> Response:
    """Publish a verdict, or keep the published one."""
    wanted, errors = read_form(DecisionCreate, filled(form))
    if wanted is None:
        return _page(services, signed_in, verification_id, typed=form, errors=errors)
    try:
        with services.database.write() as session:
            verification = decide(session, signed_in.caller, verification_id, wanted)
            told = _told(verification, wanted)
    except ServerError as error:
        return _page(services, signed_in, verification_id, typed=form, refusal=error)
    return go_on(services, signed_in, ADDRESS, told)


def _told(verification: Verification, wanted: DecisionCreate) -> Notice:
    became = "is published" if wanted.decision == "publish" else "is kept back"
    return Notice(f"The verdict of {verification.id}, {verification.outcome}, {became}.")


def _page(
    services: Services, signed_in: SignedIn, verification_id: str, **form: Any
) -> HTMLResponse:
    with services.database.read(viewer_for(signed_in.caller)) as session:
        verification = find_verification(session, verification_id)
        submission = require_submission(verification)
        standing = published_verification(submission)
        context: dict[str, Any] = {
            "submission": _submission(submission),
            "standing": _side(standing, submission) if standing is not verification else None,
            "waiting": _side(verification, submission),
            "comparison": _comparison(session, standing, verification),
        }
    return console_page(services, signed_in, "decision.html", **context, **form)


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
    return f"It was decided to {decision.decision} this verdict: {decision.reason}"


def _comparison(
    session: Session, standing: Verification | None, waiting: Verification
) -> dict[str, Any] | None:
    """Both replays side by side; latencies have no runs to compare."""
    if standing is None or standing is waiting:
        return None
    if {standing.kind, waiting.kind} != {"replay"}:
        return None
    return compare_verifications(session, standing.id, waiting.id).model_dump(mode="json")

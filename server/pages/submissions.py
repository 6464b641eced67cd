"""A submission's page, its curves, and its badge for a README."""

import hashlib
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.orm import Session

from finishline.api.submissions import WithdrawalCreate
from finishline.api.verifications import VerificationCreate
from finishline.rules.verification.replay_plan import why_not_replayable
from server.base.errors import ContentError
from server.base.middleware import reader_has
from server.base.models import Submission
from server.base.services import Services, ServicesDep
from server.base.standing import OPEN, claim_of, kind_that_checks
from server.benchmarks.phase_queries import current_phases
from server.benchmarks.queries import definition
from server.pages.addresses import site_address
from server.pages.console_page import filled, read_form
from server.pages.entries import entry_context
from server.pages.queries import (
    submission_context,
    submission_page_context,
    submission_with_checks,
    submission_with_curves,
)
from server.people.accounts import ORGANISERS
from server.people.dependencies import require_allowed
from server.people.sessions import csrf_token
from server.people.signed_in import FormDep, SignedInDep, ViewerDep, signed_in_or_none
from server.submissions.service import find_submission
from server.submissions.withdrawals import may_withdraw, withdraw
from server.verifications.requests import ask_as_caller, why_no_room
from web.charts import curves_figure
from web.citation import badge_svg
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/submissions/{submission_id}", response_class=HTMLResponse)
def submission_page(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> str:
    """A submission and its score, step by step."""
    with services.database.read(viewer) as session:
        context = submission_page_context(session, services, submission_id)
        context["site"] = site_address(request, services.settings)
        context |= _for_its_owner(session, request, services, submission_id)
        if context["submission"]["kind"] == "inference":
            return render("inference.html", **context)
        if context["submission"]["package"] is not None:
            submission = find_submission(session, submission_id)
            return render("entry.html", **context, **entry_context(session, viewer, submission))
        context["curves"] = submission_with_curves(session, submission_id)
    return render("submission.html", **context)


@router.get("/submissions/{submission_id}/charts/curves.json")
def curves_chart(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> dict[str, Any]:
    """Quality against time, run by run."""
    with services.database.read(viewer) as session:
        context = submission_context(session, services, submission_id)
        runs = submission_with_curves(session, submission_id)
    return curves_figure(
        runs, context["benchmark"]["target"], context["control_points"], time=context["time"]
    )


@router.get("/submissions/{submission_id}/badge.svg")
def badge(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> Response:
    """SVG badge of a submission's state; caches revalidate it on every request."""
    with services.database.read(viewer) as session:
        context = submission_with_checks(session, services, submission_id)
    submission = context["submission"]
    content = badge_svg(submission, context["time"]).encode()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="image/svg+xml", headers=headers)


@router.post("/submissions/{submission_id}/withdraw")
def withdraw_submission(
    submission_id: str, services: ServicesDep, signed_in: SignedInDep, form: FormDep
) -> Response:
    """Withdraw a submission from its page, as its submitter or an organiser."""
    wanted, errors = read_form(WithdrawalCreate, filled(form))
    if wanted is None:
        raise ContentError(f"Nothing was withdrawn. Reason: {errors.get('reason', 'fill it in')}")
    with services.database.write() as session:
        withdraw(session, signed_in.caller, submission_id, wanted.reason)
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


@router.post("/submissions/{submission_id}/verify")
def verify_submission(
    submission_id: str,
    services: ServicesDep,
    signed_in: SignedInDep,
    request: Request,
    _form: FormDep,
) -> Response:
    """Ask for the first replay of a submission, or for more runs of an entry, from its page."""
    caller = signed_in.caller
    require_allowed(caller, request, ("submitter", *ORGANISERS), "submit")
    with services.database.write() as session:
        wanted = VerificationCreate(kind=kind_that_checks(find_submission(session, submission_id)))
        asked = ask_as_caller(session, services.settings, caller, submission_id, wanted).id
    return RedirectResponse(f"/verifications/{quote(asked, safe='')}", status_code=303)


def _for_its_owner(
    session: Session, request: Request, services: Services, submission_id: str
) -> dict[str, Any]:
    """End of the embargo, and the CSRF token of a reader who may withdraw and verify it."""
    submission = find_submission(session, submission_id)
    phases = current_phases(session, submission.benchmark_id) if submission.embargoed else None
    until = phases.embargo_until if phases is not None else None
    signed_in = signed_in_or_none(request, services)
    may = signed_in is not None and may_withdraw(signed_in.caller, submission)
    unable = (
        None if submission.trained_with == "package" else _why_not_replayed(session, submission)
    )
    may_verify = may and unable is None and _may_be_verified(submission)
    no_room = None
    if signed_in is not None and may_verify:
        no_room = why_no_room(session, services.settings, signed_in.caller, submission)
    return {
        "embargo_until": until.isoformat() if until is not None else None,
        "csrf": csrf_token(signed_in.secret) if signed_in is not None and may else None,
        "may_verify": may_verify and no_room is None,
        "no_room": no_room,
        "unable": unable,
    }


def _why_not_replayed(session: Session, submission: Submission) -> str | None:
    benchmark = definition(session, submission.benchmark_sha256)
    return why_not_replayable(benchmark, claim_of(submission))


def _may_be_verified(submission: Submission) -> bool:
    """Whether a submission's page offers its first replay, or more runs of an entry."""
    if submission.withdrawn_at is not None or submission.published is not None:
        return False
    if submission.trained_with == "package":
        return not any(each.state in OPEN for each in submission.verifications)
    return not submission.verifications

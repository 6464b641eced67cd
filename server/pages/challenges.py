"""Pages of a challenge: its cost before it starts, and a submitter's entries that may challenge."""

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.api.duels import ChallengeCreate
from finishline.rules.submissions.accelerators import hardware_words
from finishline.rules.verification.purposes import DUEL
from server.base.errors import ContentError
from server.base.models import Submission, Verification
from server.base.services import Services, ServicesDep
from server.base.standing import OPEN, is_challenge
from server.benchmarks.queries import find_benchmark
from server.pages.console_page import filled, read_form
from server.people.accounts import SUBMITTERS
from server.people.dependencies import Caller, require_one_of
from server.people.sessions import csrf_token
from server.people.signed_in import (
    FormDep,
    SignedInDep,
    ViewerDep,
    get_signed_in,
    viewer_for,
)
from server.submissions.service import find_submission
from server.verifications.challenges import challenge, preview_challenge
from web.render import render

router = APIRouter(include_in_schema=False)
MOST = 20


@router.get("/submissions/{submission_id}/challenge", response_class=HTMLResponse)
def challenge_page(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> str:
    """The holder, the runs and the cost of a challenge before it is asked for."""
    with services.database.read(viewer) as session:
        find_submission(session, submission_id)
        signed_in = get_signed_in(request, services)
        caller = _submitter(signed_in.caller)
        shown = _preview(session, services, caller, submission_id)
    return render("challenge.html", **shown, csrf=csrf_token(signed_in.secret))


@router.post("/submissions/{submission_id}/challenge")
def ask_to_challenge(
    submission_id: str,
    services: ServicesDep,
    signed_in: SignedInDep,
    form: FormDep,
) -> Response:
    """Challenge the holder that the page named."""
    caller = _submitter(signed_in.caller)
    wanted, errors = read_form(ChallengeCreate, filled(form))
    if wanted is None:
        raise ContentError(f"No challenge was made. {next(iter(errors.values()))}")
    with services.database.write() as session:
        duel = challenge(session, services.settings, caller, submission_id, wanted).id
    return RedirectResponse(f"/verifications/{quote(duel, safe='')}", status_code=303)


@router.get("/benchmarks/{benchmark_id}/challenge", response_class=HTMLResponse)
def entries_page(benchmark_id: str, services: ServicesDep, request: Request) -> str:
    """The reader's measured packages of a benchmark, each with its challenge or why it has none."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    caller = _submitter(get_signed_in(request, services).caller)
    with services.database.read(viewer_for(caller)) as session:
        own = session.scalars(
            select(Submission.id)
            .where(
                Submission.user_id == caller.user_id,
                Submission.benchmark_id == benchmark_id,
                Submission.trained_with == "package",
                Submission.withdrawn_at.is_(None),
            )
            .order_by(Submission.submitted_at.desc())
            .limit(MOST)
        ).all()
        entries = [_preview(session, services, caller, each) for each in own]
    return render("challenges.html", benchmark=benchmark, entries=entries)


def _submitter(caller: Caller) -> Caller:
    require_one_of(caller, SUBMITTERS)
    return caller


def duels_under_way(session: Session, submission: Submission) -> list[dict[str, Any]]:
    """Queued and running duels of a submission, each with its other side."""
    both = (Verification.submission_id, Verification.against_id)
    statement = (
        select(Verification)
        .where(
            Verification.kind == DUEL.name,
            Verification.state.in_(OPEN),
            or_(*(side == submission.id for side in both)),
        )
        .order_by(Verification.created_at, Verification.id)
    )
    return [_under_way(session, duel, submission) for duel in session.scalars(statement)]


def _under_way(session: Session, duel: Verification, submission: Submission) -> dict[str, Any]:
    is_challenger = duel.submission_id == submission.id
    other = duel.against if is_challenger else duel.submission
    attempt = duel.attempts[-1] if duel.attempts and duel.state == "running" else None
    last = (attempt.last_evaluation if attempt is not None else None) or {}
    return {
        "id": duel.id,
        "state": duel.state,
        "runs": duel.runs,
        "run": last.get("run"),
        "is_challenge": is_challenge(duel),
        "is_challenger": is_challenger,
        "other": None if other is None else _named(other),
    }


def _preview(
    session: Session, services: Services, caller: Caller, submission_id: str
) -> dict[str, Any]:
    preview = preview_challenge(session, services.settings, caller, submission_id)
    sides = [
        None if name is None else find_submission(session, name)
        for name in (preview.challenger, preview.holder)
    ]
    challenger, holder = (None if side is None else _named(side) for side in sides)
    return {"preview": preview.model_dump(), "challenger": challenger, "holder": holder}


def _named(submission: Submission) -> dict[str, Any]:
    return {
        "id": submission.id,
        "model": submission.model,
        "hardware": hardware_words(submission.system),
        "trained_with": submission.trained_with,
        "submitter": submission.submitter,
        "display_name": submission.display_name,
    }

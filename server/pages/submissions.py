"""A submission's page, its curves, and its badge for a README."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from finishline.rules.verification.replay import why_not_replayable
from server.base.errors import ContentError
from server.base.middleware import reader_has
from server.base.models import Pool, Submission, Verification
from server.base.services import Services, ServicesDep, site_address
from server.base.standing import OPEN, Estimator, claim_of, kind_that_checks
from server.base.visibility import is_source_public
from server.benchmarks.definitions import definition
from server.benchmarks.phases import current_phases
from server.benchmarks.views import benchmark_view
from server.boards.board import query_of
from server.boards.live import read_ghosts
from server.boards.records import held_record
from server.pages.actions import Role, actions_of
from server.pages.console_page import read_form
from server.pages.entries import entry_context, ranking_runs
from server.pages.places import official_board
from server.pages.queries import (
    ranking_curves,
    submission_context,
    submission_page_context,
    submission_with_checks,
    submission_with_curves,
    verification_shown,
)
from server.pages.verifications import GhostQuery, shown_verification
from server.people.accounts import ORGANISERS, SUBMITTERS
from server.people.declared import filled
from server.people.dependencies import require_one_of
from server.people.signed_in import (
    FormDep,
    SignedInDep,
    ViewerDep,
    get_signed_in,
    signed_in_or_none,
)
from server.submissions import standing_changes as changes
from server.submissions.lists import find_submission
from server.submissions.standing_changes import (
    WaiverCreate,
    WithdrawalCreate,
    broken_rules,
    may_withdraw,
)
from server.verifications.requests import AskedFor, VerificationCreate, ask_as_caller, why_no_room
from web.citation import badge_endpoint, badge_svg
from web.race import runs_picture
from web.render import render

router = APIRouter(include_in_schema=False)
Context = dict[str, Any]
TabQuery = Annotated[Literal["result", "runs", "scoring", "system", "history", "cite"], Query()]


@router.get("/submissions/{submission_id}", response_class=HTMLResponse)
def submission_page(
    submission_id: str,
    services: ServicesDep,
    viewer: ViewerDep,
    request: Request,
    tab: TabQuery = "result",
    ghost: GhostQuery = None,
) -> str:
    """A submission: its race and verdict, or its runs, score, system, history, citation."""
    with services.database.read(viewer) as session:
        # Held from here on, so that each part of the page finds it loaded.
        submission = find_submission(session, submission_id)
        context = submission_page_context(session, services, submission_id)
        context["site"] = site_address(request, services.settings)
        context["held"] = _held(session, services, submission)
        context["head_to_heads"] = _head_to_heads_under_way(session, submission)
        context["original"] = _original(session, submission)
        context |= _for_its_owner(session, request, services, submission, context)
        context["entry"] = None
        if context["submission"]["package"] is not None:
            context["entry"] = entry_context(session, viewer, submission)
        context |= _shown(session, services, submission, context, tab, ghost)
    return render("submission.html", **context, tab=tab)


def _held(session: Session, services: Services, submission: Submission) -> Context | None:
    """The published record of a division, if it holds it or has a lower time; else None."""
    benchmark = services.benchmarks.get(submission.benchmark_id)
    if benchmark is None or submission.evidence != "published":
        return None
    held = held_record(session, benchmark, submission.division)
    if held is None or submission.id not in (held["submission_id"], *held["lower"]):
        return None
    return held


def _original(session: Session, submission: Submission) -> Context | None:
    """The original of a duplicate, with its measured time."""
    if submission.duplicate_of is None:
        return None
    original = session.get(Submission, submission.duplicate_of)
    if original is None:
        return None
    pool = None if original.pool_id is None else session.get(Pool, original.pool_id)
    measured = pool is not None and original.evidence == "measured"
    seconds = pool.measured_seconds if pool is not None and measured else None
    is_later = original.submitted_at > submission.submitted_at
    return _named(original) | {"measured_seconds": seconds, "is_later": is_later}


def _head_to_heads_under_way(session: Session, submission: Submission) -> list[Context]:
    """Queued and running head-to-heads of a submission, each with its other side."""
    both = (Verification.submission_id, Verification.against_id)
    statement = (
        select(Verification)
        .where(
            Verification.kind == HEAD_TO_HEAD.name,
            Verification.state.in_(OPEN),
            or_(*(side == submission.id for side in both)),
        )
        .order_by(Verification.created_at, Verification.id)
    )
    return [_under_way(head_to_head, submission) for head_to_head in session.scalars(statement)]


def _under_way(head_to_head: Verification, submission: Submission) -> Context:
    other = (
        head_to_head.against
        if head_to_head.submission_id == submission.id
        else head_to_head.submission
    )
    attempt = (
        head_to_head.attempts[-1]
        if head_to_head.attempts and head_to_head.state == "running"
        else None
    )
    last = (attempt.last_evaluation if attempt is not None else None) or {}
    return {
        "id": head_to_head.id,
        "state": head_to_head.state,
        "runs": head_to_head.runs,
        "run": last.get("run"),
        "other": None if other is None else _named(other),
    }


def _named(submission: Submission) -> Context:
    return {
        "id": submission.id,
        "model": submission.model,
        "submitter": submission.submitter,
        "display_name": submission.display_name,
    }


def _shown(
    session: Session,
    services: Services,
    submission: Submission,
    context: Context,
    tab: str,
    ghost: str | None,
) -> Context:
    """The verification that the first tab shows, and the runs behind the time.

    The measured runs are drawn where others than the shown verification's make the time, and a
    submission's own runs where none of it was measured.
    """
    shown, picture = None, None
    is_measured = submission.evidence == "measured" and submission.kind == "train"
    found = _most_telling(submission, context["checks"]) if tab == "result" else None
    if found is not None:
        verification = verification_shown(session, found)
        shown = shown_verification(session, services, verification, ghost, context["time"])
    curves = []
    if is_measured and tab == "result":
        if {verification for verification, _ in ranking_runs(session, submission)} != {found}:
            curves = ranking_curves(session, submission.id)
    elif submission.kind == "train" and (tab == "runs" or (tab == "result" and not shown)):
        curves = submission_with_curves(session, submission.id)
    if curves and tab == "result":
        benchmark = definition(session, submission.benchmark_sha256)
        ghosts, _ = read_ghosts(session, submission, benchmark)
        records = [g.model_dump(mode="json") for g in ghosts if g.role == "record" and not g.is_own]
        target = benchmark_view(benchmark).target.model_dump()
        picture = runs_picture(curves, target, records, context["time"])
    return {"shown": shown, "curves": curves, "picture": picture, "is_measured": is_measured}


def _most_telling(submission: Submission, checks: Sequence[Context]) -> str | None:
    """Of the verifications that check a submission the one under way, the published, the latest.

    Where a time was measured the published one is first: it has runs that make the time.
    """
    kind = kind_that_checks(submission)
    mine = [check for check in checks if check["kind"] == kind]
    open_ones = [check for check in mine if check["state"] in OPEN]
    published = [check for check in mine if check["published"]]
    wanted = [published, open_ones] if submission.evidence == "measured" else [open_ones, published]
    first = next(iter([*wanted[0], *wanted[1], *mine]), None)
    return None if first is None else str(first["id"])


@router.get("/submissions/{submission_id}/badge.svg")
def badge(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> Response:
    """SVG badge of a submission's state; caches revalidate it on every request."""
    with services.database.read(viewer) as session:
        context = submission_with_checks(session, services, submission_id)
        of = _numbered(session, services, submission_id)
    content = badge_svg(context["submission"], context["time"], of=of).encode()
    return _badge_answer(request, content, "image/svg+xml")


@router.get("/submissions/{submission_id}/badge.json")
def badge_json(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> Response:
    """The same badge as shields.io's endpoint badge reads it."""
    with services.database.read(viewer) as session:
        context = submission_with_checks(session, services, submission_id)
        of = _numbered(session, services, submission_id)
    content = orjson.dumps(badge_endpoint(context["submission"], context["time"], of=of))
    return _badge_answer(request, content, "application/json")


def _numbered(session: Session, services: Services, submission_id: str) -> int:
    """Number of rows numbered with a submission; none on a board that this server has no more."""
    submission = find_submission(session, submission_id)
    benchmark = services.benchmarks.get(submission.benchmark_id)
    if benchmark is None:
        return 0
    return official_board(session, benchmark, query_of(benchmark, submission)).order.numbered


def _badge_answer(request: Request, content: bytes, media_type: str) -> Response:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


@router.post("/submissions/{submission_id}/withdraw")
def withdraw_submission(
    submission_id: str, services: ServicesDep, signed_in: SignedInDep, form: FormDep
) -> Response:
    """Withdraw a submission from its page, as its submitter or an organiser."""
    require_one_of(signed_in.caller, SUBMITTERS)
    wanted, errors = read_form(WithdrawalCreate, filled(form))
    if wanted is None:
        raise ContentError(f"Nothing was withdrawn. Reason: {errors.get('reason', 'fill it in')}")
    with services.database.write() as session:
        changes.withdraw_submission(session, signed_in.caller, submission_id, wanted)
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


@router.post("/submissions/{submission_id}/waive")
def waive_rule(
    submission_id: str,
    services: ServicesDep,
    signed_in: SignedInDep,
    form: FormDep,
) -> Response:
    """Waive a rule for a submission from its page, or take the waiver back, as an organiser."""
    caller = signed_in.caller
    require_one_of(caller, ORGANISERS)
    wanted, errors = read_form(WaiverCreate, filled(form))
    if wanted is None:
        fault = next((f"{name}: {told}" for name, told in errors.items()), "fill it in")
        raise ContentError(f"Nothing was waived. {fault.capitalize()}")
    with services.database.write() as session:
        waivers = find_submission(session, submission_id).waivers or ()
        if wanted.rule in [each["rule"] for each in waivers]:
            changes.revoke_rule_waiver(session, caller, submission_id, wanted.rule, wanted)
        else:
            changes.waive_rule(session, caller, submission_id, wanted)
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


@router.get("/submissions/{submission_id}/verify", response_class=HTMLResponse)
def request_page(
    submission_id: str,
    services: ServicesDep,
    viewer: ViewerDep,
    request: Request,
    kind: AskedFor | None = None,
) -> str:
    """The runs and the cost of a verification, before it is requested."""
    with services.database.read(viewer) as session:
        submission = find_submission(session, submission_id)
        signed_in = get_signed_in(request, services)
        caller = signed_in.caller
        kind = kind or kind_that_checks(submission)
        benchmark, claim = definition(session, submission.benchmark_sha256), claim_of(submission)
        expected = Estimator(session, kind).estimate(submission, benchmark, claim)
        context = submission_context(session, services, submission_id)
        no_room = why_no_room(session, services.settings, caller, submission, kind)
    return render(
        "request.html",
        submission=context["submission"],
        kind=kind,
        epochs_alone=kind == "replay" and claim.trained_with == "own",
        expected=asdict(expected),
        no_room=no_room,
        free=not caller.is_organiser,
    )


@router.post("/submissions/{submission_id}/verify")
def verify_submission(
    submission_id: str,
    services: ServicesDep,
    signed_in: SignedInDep,
    form: FormDep,
) -> Response:
    """Ask for the first replay of a submission, or for more runs of an entry, from its page."""
    caller = signed_in.caller
    require_one_of(caller, SUBMITTERS)
    with services.database.write() as session:
        checks = kind_that_checks(find_submission(session, submission_id))
        wanted, errors = read_form(VerificationCreate, {"kind": form.get("kind") or checks})
        if wanted is None:
            raise ContentError(f"Nothing was requested. Kind: {errors['kind']}")
        asked = ask_as_caller(session, services.settings, caller, submission_id, wanted).id
    return RedirectResponse(f"/verifications/{quote(asked, safe='')}", status_code=303)


def _for_its_owner(
    session: Session,
    request: Request,
    services: Services,
    submission: Submission,
    context: Context,
) -> Context:
    """End of the embargo, and the buttons of a reader's role."""
    phases = current_phases(session, submission.benchmark_id) if submission.embargoed else None
    until = phases.embargo_until if phases is not None else None
    signed_in = signed_in_or_none(request, services)
    caller = signed_in.caller if signed_in is not None else None
    may = caller is not None and may_withdraw(caller, submission)
    is_package = submission.trained_with == "package"
    unable = None if is_package else _why_not_replayed(session, submission)
    may_verify = may and unable is None and _may_be_verified(submission)
    organises = caller is not None and caller.is_organiser
    no_room = None
    if caller is not None and may_verify:
        no_room = why_no_room(session, services.settings, caller, submission)
    may_ask = may_verify and no_room is None
    role = Role(
        may_withdraw=may and submission.withdrawn_at is None,
        may_verify=may_ask,
        organises=organises,
        may_measure_factors=(may_ask or organises) and _has_public_factors(submission),
    )
    return {
        "embargo_until": until.isoformat() if until is not None else None,
        "may_withdraw": may,
        "waivable": _waivable(submission) if role.organises else [],
        "actions": actions_of(context["submission"], context["place"], role, unable),
        "no_room": no_room,
        "unable": unable,
    }


def _has_public_factors(submission: Submission) -> bool:
    """Whether the code of a submission has factors, which the runs of an ablation may name."""
    package = submission.trained_package
    return package is not None and bool(package.manifest["factors"]) and is_source_public(package)


def _waivable(submission: Submission) -> list[str]:
    """Rules that a result breaks and that can be waived; those that are waived too."""
    broken = broken_rules(submission.result.get("violations", ()), ())
    return [rule for rule in broken if rule in WAIVABLE]


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

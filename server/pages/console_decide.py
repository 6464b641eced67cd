"""Deciding about the verdict of a rerun, beside the one that is published."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from finishline.rules.ranking import evidence_words
from finishline.rules.verification.replay import cpu_share
from server.base.models import Submission, Verification
from server.base.standing import (
    checks_claim,
    find_verification,
    is_pending,
    published_verification,
    purpose_of,
    report_of,
    require_submission,
    row_evidence,
)
from server.boards.records import list_records
from server.boards.submissions import places_of
from server.pages.board_times import times_of
from server.pages.console_overview import pending_verdicts
from server.pages.console_page import Console, Done, OrganiserDep
from server.pages.queries import submission_context
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.verifications.pools import row_if_published
from server.verifications.reruns import (
    DecisionCreate,
    ReplayFigures,
    VerificationComparison,
    compare_verifications,
    decide,
)
from web.decisions import decision_headline, decision_rows, run_dots

router = APIRouter(include_in_schema=False)
DECIDED = {"publish": "to publish it", "keep": "to keep it back"}
ADDRESS = "/console/decide"
Context = dict[str, Any]


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
        published = published_verification(submission)
        standing = published if published is not verification else None
        comparison = _comparison(session, standing, verification)
        figures = (comparison.first.runs, comparison.second.runs) if comparison else ([], [])
        sides = (
            None if standing is None else _side(standing, submission, figures[0]),
            _side(verification, submission, figures[1]),
        )
        left = [each["id"] for each in pending_verdicts(session) if each["id"] != verification.id]
        context = _consequence(session, console, verification, submission, sides, comparison)
        shown = submission_context(session, console.services, submission.id)["submission"]
    return console.page(
        "decision.html",
        **context,
        submission=shown,
        standing=sides[0],
        waiting=sides[1],
        comparison=comparison,
        next=left[0] if left else None,
        left=len(left),
        **form,
    )


def _consequence(
    session: Session,
    console: Console,
    verification: Verification,
    submission: Submission,
    sides: tuple[Context | None, Context],
    comparison: VerificationComparison | None,
) -> Context:
    """The headline, the rows and the run dots of a decision."""
    before = row_evidence(submission)
    is_judged = verification.outcome is not None and checks_claim(verification, submission)
    after = row_if_published(session, submission, verification) if is_judged else before
    benchmark = console.services.benchmarks.get(submission.benchmark_id)
    place = places_of(session, console.services.benchmarks)(submission)
    divisions = [] if benchmark is None else list_records(session, benchmark).divisions
    holders = {division.holder for division in divisions}
    time = times_of(
        session,
        console.services.benchmarks,
        submission.benchmark_id,
        submission.division,
        submission.evidence,
    )
    old = (sides[0] or sides[1]) | {"words": evidence_words(before)}
    new = sides[1] | {"words": evidence_words(after)}
    differences = [vars(each) for each in comparison.differences] if comparison else []
    return {
        "headline": decision_headline(
            before, after, rank=place.get("rank"), holds_record=submission.id in holders
        ),
        "rows": decision_rows(old, new, differences, time),
        "dots": run_dots(old, new) if comparison else [],
    }


def _side(
    verification: Verification, submission: Submission, figures: Sequence[ReplayFigures]
) -> Context:
    report = report_of(verification)
    return {
        "id": verification.id,
        "kind": verification.kind,
        "outcome": verification.outcome or verification.state,
        "ended_at": verification.ended_at.isoformat() if verification.ended_at else None,
        "worker": report.system.worker if report is not None else None,
        "reason": verification.reason,
        "reasons": verification.reasons,
        "pending": is_pending(verification, submission),
        "settled": _settled(verification),
        "runs": [vars(run) for run in figures],
        "cpu_share": None if report is None else cpu_share(report),
    }


def _settled(verification: Verification) -> str:
    if verification.decision is None:
        return f"This verification is {verification.state}: it has no verdict to decide about."
    words = DECIDED[verification.decision]
    return f"The decision on this verdict was {words}: {verification.decision_reason}"


def _comparison(
    session: Session, standing: Verification | None, waiting: Verification
) -> VerificationComparison | None:
    """Both replays or measurements side by side; latencies have no runs to compare."""
    if standing is None or standing is waiting:
        return None
    if not (purpose_of(standing).fills_pool and purpose_of(waiting).fills_pool):
        return None
    return compare_verifications(session, standing.id, waiting.id)
